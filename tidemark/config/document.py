"""YAML with the line of every value: PyYAML checks the form, we keep the places."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError, SafeConstructor

from tidemark.config.problems import Place, Problem, as_error, refusal

TAG = "tag:yaml.org,2002:"
SCALARS = {f"{TAG}{kind}" for kind in ("str", "int", "float", "bool", "null")}


@dataclass
class Document:
    """The data of a file, the line of every place in it, and what was wrong already."""

    file: str
    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, place: Place) -> int:
        """The line of the place, or of the nearest one around it that is written in the file."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def report(self, place: Place, words: str) -> None:
        self.problems.append(Problem(self.line(place), place, words))


def read_document(path: Path, file: str, *, least: str, elsewhere: str) -> Document:
    """The document in the file; what is not YAML, or not a mapping, is an error of its own.

    `least` says what such a file needs at least, `elsewhere` how to name another file.
    """
    return parsed_document(text_of(path, file, elsewhere), file, least=least)


def parsed_document(text: str, file: str, *, least: str) -> Document:
    """The document in the text, whose lines are those of the file."""
    document = Document(file)
    strange = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if strange:
        line = text.count("\n", 0, strange.start()) + 1
        words = f"a character that cannot be in YAML (code {ord(strange.group()):#x}). Remove it."
        raise as_error(file, [Problem(line, (), words)])
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is None:
            raise refusal(file, f"the file is empty. {least}")
        document.data = _Walk(document).value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise as_error(file, [Problem(mark.line + 1 if mark else 1, (), _advice(error))]) from None
    except RecursionError:
        raise refusal(file, "nested too deeply to be a configuration.") from None
    if not isinstance(document.data, dict):
        raise refusal(file, f"this is not `key: value` lines. {least}", node.start_mark.line + 1)
    return document


def text_of(path: Path, file: str, elsewhere: str) -> str:
    """The file's text; a file that is not there, or not text, is an error."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise refusal(file, f"the configuration cannot be read ({error.strerror}). {elsewhere}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise as_error(file, [Problem(line, (), "this is not UTF-8 text. Save the file as UTF-8.")]) from None


def _advice(error: yaml.MarkedYAMLError) -> str:
    problem = error.problem or "not YAML"
    if "'\\t'" in problem:
        return "a tab. YAML is indented with spaces only."
    if "expected a single document" in (error.context or ""):
        return "a second document begins here. Leave out the `---`."
    # PyYAML quotes names of anchors: a password that begins with * would be one.
    problem = re.sub(r"'(?!<)[^']{2,}'", "'…'", problem)
    return f"this is not YAML: {problem}. Values that begin with * & ! % @ ` or hold ': ' or ' #' need quotes."


class _Walk:
    """Turns YAML's nodes into plain values and notes their lines."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._constructor = SafeConstructor()
        self._around: list[yaml.Node] = []
        self._flat: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._document.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, place)
        if any(outer is node for outer in self._around):
            self._document.report(place, "this refers to itself.")
            return None
        self._around.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, place)
            return [self.value(item, (*place, position)) for position, item in enumerate(node.value)]
        finally:
            self._around.pop()

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        if node.tag == f"{TAG}timestamp":
            return node.value  # no setting is a date: text stays as it is written
        if node.tag not in SCALARS:
            self._document.report(place, "tags (words that begin with !) are not allowed here.")
            return None
        try:
            return self._constructor.construct_object(node)
        except ValueError:
            return node.value

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        self._flatten(node, place)
        found: dict[str, Any] = {}
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag != f"{TAG}str":
                self._document.lines.setdefault((*place, "?"), key.start_mark.line + 1)
                self._document.report((*place, "?"), "a key must be text. Put it in quotes.")
                continue
            inner = (*place, key.value)
            self._document.lines[inner] = key.start_mark.line + 1
            value = self.value(item, inner)
            if value is not None:  # a key with nothing after it is as good as none
                found[key.value] = value
        return found

    def _flatten(self, node: yaml.MappingNode, place: Place) -> None:
        """Takes in what `<<: *name` brings, once: an alias leads here again."""
        if id(node) in self._flat:
            return
        self._flat.add(id(node))
        seen: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                words = f"this key stands in line {seen[key.value]} already. Keep one of the two."
                self._document.problems.append(Problem(line, (*place, key.value), words))
            elif isinstance(key, yaml.ScalarNode):
                seen[key.value] = line
        try:
            self._constructor.flatten_mapping(node)
        except ConstructorError:
            self._document.report(place, "`<<` must be followed by the alias of a mapping.")
            node.value = [pair for pair in node.value if pair[0].tag != f"{TAG}merge"]
