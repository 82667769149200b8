"""The command `completion`: a script with which a shell completes commands, options and known values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from app.read.questions import QUESTIONS
from app.tables.definitions import TABLES
from app.tables.views import VIEWS
from state.jobs import JOBS

SCRIPT = r"""# Completion of Weir for bash and zsh: eval "$(./spark-submit.sh completion)"
[ -z "${ZSH_VERSION:-}" ] || { autoload -U +X compinit bashcompinit; compinit; bashcompinit; }
_weir() {
  local word at= words= begin= end=${COMP_WORDS[COMP_CWORD]}
  for word in "${COMP_WORDS[@]:1:$((COMP_CWORD - 1))}"; do
    case "$at $word" in
      @commands) at="$at $word" ;;
    esac
  done
  case "$at" in
@words
  esac
  case "${COMP_WORDS[COMP_CWORD-1]}" in
    --jobs) words='@jobs' ;;
    --table) words='@tables' ;;
  esac
  case "$end" in
    *' '*) words='@tables' end=${end#[\"\']}; begin="${end% *} " end=${end##* } ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$end"))
  [ -z "$begin" ] || COMPREPLY=("${COMPREPLY[@]/#/$begin}")
}
complete -o default -F _weir ./spark-submit.sh spark-submit.sh weir
"""
"""A word with a blank is a statement of SQL, whose last word may be a table."""


def script(command: Any) -> str:
    """The script, for a command of Click with all that are below it."""
    below = dict(_below(command, ""))
    commands = [f'"{path}"' for path in below if path]
    return (
        SCRIPT.replace("@commands", " | ".join(commands))
        .replace(
            "@words", "\n".join(f"    '{at}') words='{each}' ;;" for at, each in below.items())
        )
        .replace("@jobs", " ".join(JOBS))
        .replace("@tables", " ".join([*TABLES, *VIEWS]))
    )


def _below(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """By the words of each command what may follow them."""
    commands = getattr(command, "commands", {})
    words = [name for name, each in commands.items() if not each.hidden]
    words += [o for each in command.params for o in each.opts if o.startswith("--")]
    yield path, " ".join([*words, *(QUESTIONS if path == " query" else ())])
    for name, each in commands.items():
        yield from _below(each, f"{path} {name}")
