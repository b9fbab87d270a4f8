"""The JSON Schema of tidemark.yaml, for editors."""

from typing import Any

from tidemark.config.model import Config

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCE = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}  # a number or a switch may come from the environment


def config_schema() -> dict[str, Any]:
    """What the file may say, with a description of every key."""
    from tidemark.catalog.packs import known_apps

    schema = Config.model_json_schema(by_alias=True)
    parts = schema["$defs"]
    parts["Connection"]["properties"]["app"]["enum"] = list(known_apps())
    for section in ("ModelsSettings", "StoreSettings"):
        parts[section] = {
            "anyOf": [{"type": "string", "minLength": 1}, parts[section]],
            "description": parts[section]["description"],
        }
    return {"$schema": DIALECT, **with_references(schema)}


def with_references(part: Any) -> Any:
    """The schema, with a reference to the environment allowed wherever text would not be."""
    if isinstance(part, list):
        return [with_references(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") not in ("integer", "number", "boolean"):
        return {key: with_references(value) for key, value in part.items()}
    kept = {key: part[key] for key in ("title", "description", "default") if key in part}
    return {**kept, "anyOf": [{key: value for key, value in part.items() if key not in kept}, REFERENCE]}
