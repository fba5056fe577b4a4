"""Measure the figures that this project aims at, side by side with their goals."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specsample.cli import _models, _output
from specsample.errors import UserError

# As in `bench.suite`, which is not imported before it is needed.
FIGURES = (
    "block, plain, bandwidth, lookup, peer, prediction, law, compilations, placements, startup"
)
CURVES = "width, lookahead, retrieval, trie, staged"  # as in `bench.studies`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    parser.add_argument("--model", help=f"as `generate` takes it ({_models.DEFAULT})")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="of weights and activations"
    )
    parser.add_argument("--figures", metavar="NAME,...", help=f"only these of {FIGURES}")
    parser.add_argument(
        "--preset",
        choices=("accelerator", "translation", "methods", "curves"),
        help="'accelerator': a 7B target and a wide-shallow draft with made-up weights on one TPU "
        "or GPU, in under 6 minutes; no figure above, and no model, is asked for. 'translation': "
        "an encoder-decoder --model with every --draft_model over draft lengths and temperatures, "
        "on a --task that has references. 'methods': every --method beside plain decoding on a "
        "--task, greedy and sampled. 'curves': what settings of drafters do for the tokens of a "
        "step, beside the trends of the papers; counts, which a busy machine does not change",
    )
    parser.add_argument(
        "--draft_model", action="append", default=[], help="of --preset translation; repeatable"
    )
    parser.add_argument(
        "--method",
        action="append",
        default=[],
        metavar="'DRAFTER OPTION=VALUE ...'",
        help="of --preset methods; repeatable. schedule=NAME puts a schedule in front, warm=True "
        "fills its store with answers to other prompts first",
    )
    parser.add_argument(
        "--task",
        help="of --preset translation (parallel_en_de), methods or curves (humaneval), as "
        "MIXTURE_OR_TASK_NAME",
    )
    parser.add_argument("--data_dir", help="folder of the task's data")
    parser.add_argument("--split", help="part of the task's data; of --preset methods several, A,B")
    parser.add_argument("--prompts", type=int, help="of methods and curves, of every part (8)")
    parser.add_argument("--tokens", type=int, help="of methods (128) and curves (64), of an answer")
    parser.add_argument("--curves", metavar="NAME,...", help=f"only these of {CURVES}")
    parser.add_argument(
        "--corpus", metavar="PATH", help="of --preset curves, to retrieve from (Python's library)"
    )
    parser.add_argument(
        "--output_dir",
        type=Path,
        help="of --preset curves: NAME.png and NAME.json, each as soon as it is there; one that is "
        "there is not measured again",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a rough look: few rounds, prompts and tokens"
    )


def run(args: argparse.Namespace) -> int:
    """Measures, prints tables and writes JSON."""
    _output.check_writable(args.json)
    if args.preset == "accelerator":
        return _accelerator(args)
    if args.preset == "translation":
        return _translation(args)
    if args.preset == "methods":
        return _methods(args)
    if args.preset == "curves":
        return _curves(args)
    _refuse(args, _PARTS, "without a --preset that takes it")
    from rich.console import Console

    from specsample.bench import report, suite
    from specsample.bench.figures import Workbench

    names = _names(args.figures)
    suite.choose(names)
    model = _models.load(args.model or _models.DEFAULT, args.dtype)
    with _output.status("measuring") as say:
        bench = Workbench(model, args.quick, say)
        result = suite.run(bench, names)
    _warn_if_busy(result)
    Console().print(report.figures_table(result["figures"]))
    _output.write_json(args.json, report.record(result))
    return 0


def _accelerator(args: argparse.Namespace) -> int:
    _refuse(
        args,
        ("model", "figures", "dtype", *_PARTS),
        "beside --preset accelerator, which has models and figures of its own",
    )
    from rich.console import Console

    from specsample.bench import accelerator, accelerator_report

    with _output.status("measuring") as say:
        result = accelerator.run(args.quick, say)
    _warn_if_busy(result)
    for table in accelerator_report.tables(result):
        Console().print(table)
    _output.write_json(args.json, accelerator.record(result))
    return 0


def _translation(args: argparse.Namespace) -> int:
    from rich.console import Console

    from specsample.bench import translation, translation_report
    from specsample.tasks import registry

    others = ("figures", "method", "prompts", "tokens", "curves", "corpus", "output_dir")
    _refuse(args, others, "beside --preset translation, which has figures of its own")
    if not args.model or not args.draft_model:
        raise UserError("--preset translation needs --model and one --draft_model or more.")
    task = registry.load(args.task or "parallel_en_de", split=args.split, data_dir=args.data_dir)
    target = _models.load(args.model, args.dtype)
    drafts = {path: _models.load(path, args.dtype) for path in args.draft_model}
    plan = translation.QUICK if args.quick else translation.Plan()
    with _output.status("measuring") as say:
        result = translation.run(target, drafts, task, plan, say)
    _warn_if_busy(result)
    for table in translation_report.tables(result):
        Console().print(table)
    _output.write_json(args.json, result)
    return 0


def _methods(args: argparse.Namespace) -> int:
    import dataclasses

    from rich.console import Console

    from specsample.bench import methods, methods_report
    from specsample.tasks import registry

    others = ("figures", "draft_model", "curves", "corpus", "output_dir")
    _refuse(args, others, "beside --preset methods, which has --method")
    chosen = [methods.parse(text) for text in args.method or methods.DEFAULT]
    plan = methods.QUICK if args.quick else methods.Plan()
    given = {"prompts": args.prompts, "tokens": args.tokens}
    plan = dataclasses.replace(plan, **_positive(given))
    tasks = []
    for split in args.split.split(",") if args.split else [None]:
        task = registry.load(args.task or "humaneval", split=split, data_dir=args.data_dir)
        tasks.append(dataclasses.replace(task, name=split or task.name))
    model = _models.load(args.model or _models.DEFAULT, args.dtype)
    with _output.status("measuring") as say:
        result = methods.run(model, chosen, tasks, plan, say)
    _warn_if_busy(result)
    for table in methods_report.tables(result):
        Console().print(table)
    _output.write_json(args.json, result)
    return 0


def _curves(args: argparse.Namespace) -> int:
    import dataclasses

    from rich.console import Console

    from specsample.bench import curves, curves_report, studies
    from specsample.tasks import prompts, registry

    _refuse(args, ("figures", "draft_model", "method", "json"), "beside --preset curves")
    chosen = studies.choose(_names(args.curves))
    if args.output_dir is None:
        raise UserError("--preset curves writes files; give --output_dir.")
    given = {"prompts": args.prompts, "tokens": args.tokens}
    plan = curves.QUICK if args.quick else curves.Plan()
    plan = dataclasses.replace(plan, **_positive(given))
    task = registry.load(args.task or "humaneval", split=args.split, data_dir=args.data_dir)
    chosen = [name for name in chosen if not (args.output_dir / f"{name}.json").exists()]
    if not chosen:
        print(f"{args.output_dir} has all of them; remove some, or name another folder.")
        return 0
    model = _models.load(args.model or _models.DEFAULT, args.dtype)
    texts = tuple(prompts.encode_example(model, task, one) for one in task.examples)
    with _output.status("decoding") as say:
        subject = curves.Subject(model, texts, plan, task.stop, args.corpus, say)
        for name in chosen:
            panels = studies.STUDIES[name](subject)
            curves_report.save(args.output_dir, name, panels, subject)
            for table in curves_report.tables(name, panels):
                Console().print(table)
    return 0


_PARTS = (
    "draft_model", "method", "task", "data_dir", "split", "prompts", "tokens", "curves", "corpus",
    "output_dir",
)  # fmt: skip


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _positive(given: dict[str, int | None]) -> dict[str, int]:
    """Numbers that were given.

    Raises:
      UserError: one is below 1.
    """
    for name, value in given.items():
        if value is not None and value < 1:
            raise UserError(f"--{name} {value}; it must be 1 or more.")
    return {name: value for name, value in given.items() if value is not None}


def _refuse(args: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if value := getattr(args, name):
            raise UserError(f"--{name} {value} {why}; leave one of them out.")


def _warn_if_busy(result: dict[str, Any]) -> None:
    from specsample.bench import timing

    before = result["conditions"]["before"]
    if not timing.quiet(before["load_average"], before["cores"]):
        _output.warn(
            f"the load average was {before['load_average'][0]} on {before['cores']} cores before "
            "anything was measured; figures of a busy machine are not comparable."
        )
