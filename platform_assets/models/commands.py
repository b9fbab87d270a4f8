"""`tidemark model`: models at a shell."""

import typer

from platform_assets.models.looking import model_lineage, model_list


def register(app: typer.Typer) -> None:
    model = typer.Typer(help="Models: queries whose results are kept as tables and views.", no_args_is_help=True)
    for name, command in (("list", model_list), ("lineage", model_lineage)):
        model.command(name)(command)
    app.add_typer(model, name="model")
