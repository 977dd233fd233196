"""`assay mapping`: what a mapping file makes of somebody else's transactions."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def mapping() -> None:
    """Try a file that maps transactions of another shape to ours (ASSAY_MAPPING).

    \b
    Examples:
      assay mapping check stripe.yaml --sample charges.jsonl
    """


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The mapping file (YAML).")],
    sample: Annotated[
        Path | None,
        typer.Option(help="Transactions as they come: one JSON value, or one a line; without it only the file is checked."),
    ] = None,
) -> None:
    """Check a mapping file, and show what it makes of a sample. Exits 1 where something of it would be refused.

    \b
    Examples:
      assay mapping check stripe.yaml
      assay mapping check stripe.yaml --sample charges.jsonl
    """
    import json

    from assay.deploy.mapping_sample import checked
    from assay.schemas.mapping_file import load_mapping

    mapped = load_mapping(file)
    assert mapped is not None
    if sample is None:
        print(f"{file} can be used")
        return
    refused = 0
    for line, found in checked(sample, mapped):
        refused += "refused" in found
        print(json.dumps({"line": line} | found, ensure_ascii=False))
    if refused:
        raise typer.Exit(1)
