"""`loadgen report` and `loadgen compare`: what stored runs tell. Nothing is sent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from conformance.errors import UsageError
from loadgen import against, archive, compare_console, export, page, together
from loadgen.blocks import units_of
from loadgen.compare import differences
from loadgen.compare_console import Comparison
from loadgen.likeness import unlike
from loadgen.output import Outputs
from loadgen.reload import document_at, load, runs_of
from loadgen.versions import version


def report(args: argparse.Namespace) -> int:
    """Returns 0, whatever the run's own exit code was; raises UsageError."""
    document = document_at(Path(args.run))
    both = against.reloaded(document, args.run)
    results = () if both else runs_of(document, args.run)
    wanted = {"json": args.json, "jsonl": args.jsonl, "csv": args.csv, "html": args.html}
    with Outputs(wanted) as outputs:
        if both is not None:
            against.write(outputs, both, version(), definitions=args.definitions)
            return 0
        outputs.write("json", archive.dumps(results, version(), definitions=args.definitions))
        outputs.write("jsonl", export.json_lines(*results))
        outputs.write("csv", export.csv_lines(*results))
        outputs.write("html", page.parts(results, page.numbered(results)))
        outputs.tell(together.render(results, definitions=args.definitions))
    return 0


def compare(args: argparse.Namespace) -> int:
    """Returns the exit code; raises UsageError, also for runs that were not asked the same."""
    first, second = load(Path(args.a)), load(Path(args.b))
    if (why := unlike(first, second)) is not None:
        raise UsageError(f"{args.a} and {args.b} are unlike: {why}")
    units = units_of(first, second)
    threshold = args.threshold / 100
    found = () if units is None else differences(units, args.seed, threshold)
    made = Comparison((args.a, args.b), first, second, units, found, threshold, args.seed)
    with Outputs({"json": args.json, "html": args.html}) as outputs:
        text = json.dumps(compare_console.document(made, version()), indent=1, allow_nan=False)
        outputs.write("json", iter([text + "\n"]))
        outputs.write("html", page.parts((first[0], second[0]), ("A", "B"), made))
        outputs.tell(compare_console.render(made))
    return made.exit
