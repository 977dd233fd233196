"""`assay parity`: whether decisions were made from the features that an offline replay gives."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from assay.agents.parity import Compared
    from assay.deploy.parity_run import Parity

DIFFERS = 1
MOST_FEATURES_SHOWN = 5


def parity(
    order: Annotated[
        bool, typer.Option("--order", help="Also measure what arrival order changes against the order of event times.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="End with one JSON object for a machine to read.")] = False,
) -> None:
    """Compare the evidence of a run with an offline replay of its topics, bit for bit.

    Reads transactions, dead letters and evidence whole, with the rates of ASSAY_RATES; changes nothing, and workers may run.
    Profile features are folded anew, partition by partition; entity windows in the order that the evidence gives; what
    became of transactions by the changes that it tells. Exits 1 where anything differs, or where Redis counted an observation
    that the topic does not have, or lost one (an entity that is counted anew before it could be forgotten); and names the first
    difference. Exits 1, too, where most evidence is of another feature list: too little was compared to say that all is well.

    Not compared: batch features; what has no evidence; entities that Redis had seen before the topic began; windows where it is
    not certain what Redis had counted; rows of risk after a change whose evidence is lost. It says how many were compared.

    Needs transactions from the beginning of their topic, and one ASSAY_HASH_KEY since then: windows that count how many users,
    instruments or devices were seen may differ where evidence is from under another. Memory: about 4 kB a
    transaction (5.5 with --order), 3 kB an outcome.

    \b
    Examples:
      assay parity
      assay parity --order
      assay parity --json | jq .profile_features_differ
    """
    import asyncio

    from assay.deploy.for_machines import beside_json
    from assay.deploy.parity_run import parity as run
    from assay.deploy.progress_bars import progress_bars
    from assay.streams.settings import Settings

    with progress_bars() as report:
        found = asyncio.run(run(Settings.load(), order=order, report=report))
    with beside_json(json_):
        _show(found)
    if json_:
        import json

        print(json.dumps(summarise(found)))
    if found.differs or found.says_little:
        raise typer.Exit(DIFFERS)


def summarise(found: "Parity") -> dict[str, Any]:
    """For machines."""
    worst = found.profiles.first or found.entities.first or found.risk.first
    summary: dict[str, Any] = {
        "transactions": found.profiles.transactions,
        "with_evidence": found.profiles.compared,
        "of_other_features": found.of_other_features,
        "profile_features_differ": found.profiles.differ,
        "with_entity_windows": found.entities.told,
        "entity_windows_compared": found.entities.compared,
        "entity_features_differ": found.entities.differ,
        "entity_observations_miscounted": found.entities.miscounts,
        "entity_observations_unordered": found.entities.unordered,
        "with_risk_rows": found.risk.told,
        "risk_rows_compared": found.risk.compared,
        "risk_features_differ": found.risk.differ,
        "risk_readings_unordered": found.risk.unordered,
        "worst": None
        if worst is None
        else {
            "source": worst.source.header().decode(),
            "feature": worst.feature,
            "logged": worst.logged,
            "replayed": worst.replayed,
        },
    }
    if found.order is not None:
        summary["order_changes_transactions"] = found.order.transactions
        summary["order_changes_features"] = found.order.features
    return summary


def _share(compared: "Compared") -> str:
    """How many were compared, of how many whose evidence has them."""
    return f"{compared.compared:,} compared of {compared.told:,}"


def _show(found: "Parity") -> None:
    from rich.console import Console

    def say(line: str) -> None:
        Console().print(line, highlight=False, soft_wrap=True)

    profiles, entities, risk = found.profiles, found.entities, found.risk
    say(f"{profiles.transactions:,} transactions, {profiles.compared:,} with evidence")
    if found.of_other_features:
        little = ": too little is left to say that all is well" if found.says_little else ""
        say(f"{found.of_other_features:,} pieces of evidence are of another feature list, and were left out{little}")
    say(f"profile features that differ: {profiles.differ:,}")
    say(f"entity features that differ:  {entities.differ:,} of {_share(entities)} transactions with entity windows")
    if entities.miscounts:
        say(f"observations that Redis counted and the topic does not have, or the other way round: {entities.miscounts:,}")
    if entities.unordered:
        say(
            f"windows of an entity that were not compared, since no evidence says what they follow from: {entities.unordered:,}"
        )
    say(f"risk features that differ:    {risk.differ:,} of {_share(risk)} transactions with rows of risk")
    if risk.unordered:
        say(f"rows of risk that were not compared, since they follow changes that no evidence tells: {risk.unordered:,}")
    say("batch features are not compared")
    for first in (profiles.first, entities.first, risk.first):
        if first is not None:
            say(
                f"first: {first.source.header().decode()} {first.feature}: logged {first.logged!r}, replayed {first.replayed!r}"
            )
    if found.order is not None:
        most = list(found.order.features.items())[:MOST_FEATURES_SHOWN]
        share = found.order.transactions / max(1, profiles.transactions)
        affected = ", ".join(f"{name} {count:,}" for name, count in most) or "none"
        say(f"arrival order changes features of {found.order.transactions:,} transactions ({share:.1%}), most: {affected}")
