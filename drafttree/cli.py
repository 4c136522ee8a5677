"""The command line: drafttree generate | demo | train | inspect.

A fault of the user's is one line on stderr and exit code 2; an interruption is exit code 130. Heavy imports wait until
a command runs, so that ``--help`` and wrong options answer at once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from drafttree.errors import UserError

app = typer.Typer(
    name="drafttree",
    help="Faster decoding with the same output: draft trees for DFlash drafters.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

TargetArgument = Annotated[str, typer.Argument(help="Directory or hub id of the target.", show_default=False)]
DrafterOption = Annotated[str | None, typer.Option(help="Directory or hub id of the drafter.", show_default=False)]
DeviceOption = Annotated[str | None, typer.Option(help="cpu or cuda; cuda where there is one.", show_default=False)]
DtypeOption = Annotated[
    str | None, typer.Option(help="float32, bfloat16 or float64; float32 on a CPU, else bfloat16.", show_default=False)
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@app.command()
def generate(
    target: TargetArgument,
    drafter: DrafterOption = None,
    prompt: Annotated[str | None, typer.Option(help="The prompt.", show_default=False)] = None,
    prompt_file: Annotated[Path | None, typer.Option(help="A file with the prompt.", show_default=False)] = None,
    method: Annotated[str, typer.Option(help="tree, chain or plain.")] = "tree",
    budget: Annotated[int, typer.Option(help="Nodes of the tree, without the root.")] = 8,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens to generate at most.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample from the k likeliest tokens.", show_default=False)] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from this much probability.", show_default=False)] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling; random if not given.", show_default=False)] = None,
    no_chat: Annotated[
        bool, typer.Option("--no-chat", help="Give the prompt as it is, without chat template.")
    ] = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Continue a prompt with TARGET; the drafter makes it faster and changes no token."""
    from drafttree.bench.runs import Method
    from drafttree.commands.generate import run_generate
    from drafttree.sampling import SamplingParams

    text = _prompt_text(prompt, prompt_file)
    how = Method(method, budget)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    result = run_generate(
        target, drafter, text, how, params, max_new_tokens, chat=not no_chat, device=device, dtype=dtype
    )
    if as_json:
        print(json.dumps(result.as_json()))
    else:
        print(result.text)
        print(result.summary(), file=sys.stderr)


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(help="Directory or hub id of a target or a drafter.", show_default=False)],
    drafter: DrafterOption = None,
    budget: Annotated[int, typer.Option(help="Nodes of the tree whose memory is told.")] = 16,
    dtype: DtypeOption = None,
    config_only: Annotated[bool, typer.Option("--config-only", help="Read no weights, config.json alone.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Facts about a target, a drafter, or the two together: shapes, memory, and whether they fit."""
    from drafttree.commands.inspect import facts, facts_table

    found = facts(path, drafter, budget=budget, dtype=dtype, config_only=config_only)
    if as_json:
        print(json.dumps(found))
    else:
        _print(facts_table(found))


@app.command()
def demo(
    drafter: DrafterOption = None,
    cache_dir: Annotated[
        Path | None, typer.Option(help="Where downloads are kept; ~/.cache/drafttree.", show_default=False)
    ] = None,
    budget: Annotated[int, typer.Option(help="Nodes of the tree, without the root.")] = 8,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens a prompt.")] = 64,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the raw results to this file.", show_default=False)
    ] = None,
) -> None:
    """A real model decodes twelve prompts: plain, chain and tree, side by side."""
    from drafttree.demo.command import run_demo

    run_demo(drafter, cache_dir, budget=budget, max_new_tokens=max_new_tokens, json_file=json_file)


# Its options are read by the command itself, whose module imports PyTorch.
@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)
def train(context: typer.Context) -> None:
    """Train a DFlash drafter for a target on the target's own responses."""
    from drafttree.training.command import train as command

    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command()(command)
    code = typer.main.get_command(single).main(context.args, "drafttree train", standalone_mode=False)
    raise typer.Exit(code if isinstance(code, int) else 0)


def _prompt_text(prompt: str | None, prompt_file: Path | None) -> str:
    if (prompt is None) == (prompt_file is None):
        raise UserError("prompt: expected one of --prompt and --prompt-file")
    if prompt is not None:
        return prompt
    assert prompt_file is not None
    try:
        return prompt_file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{prompt_file}: cannot be read as text: {error}") from None


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit code. Faults of the user's are printed as one line."""
    try:
        code = typer.main.get_command(app).main(arguments, "drafttree", standalone_mode=False)
    except UserError as error:
        return _complain(str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", 130)
    except Exception as error:
        message = getattr(error, "format_message", None)  # Typer's errors about options; its releases move the class
        if message is None:
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message(), file=sys.stderr)
            return 2
        return _complain(f"{message()} (drafttree --help)", 2)
    return code if isinstance(code, int) else 0


def _complain(message: str, code: int) -> int:
    print("drafttree: " + " ".join(message.split()), file=sys.stderr)
    return code


def main() -> NoReturn:
    """Entry point of the ``drafttree`` command."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
