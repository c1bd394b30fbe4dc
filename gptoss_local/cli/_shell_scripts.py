"""Completion scripts for four shells, made of the commands that `completion` has read.

Names come from `gptoss __complete`, through the command as it was typed, so that a shell completes
for the gptoss that it will run. No shell evaluates them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gptoss_local.cli._names import NameKind

_BASH = r"""# Completion of gptoss for bash: source <(gptoss completion bash)
_gptoss() {
    local IFS=$' \t\n' line="${COMP_LINE:0:COMP_POINT}" word="" offered="" candidate option=""
    local options="" valued="" values="" names="" n=0 most=0
    local -a parts=()
    read -r -a parts <<< "$line"  # not COMP_WORDS, which breaks names at their colons
    if [[ $line != *[[:space:]] ]]; then
        word="${parts[${#parts[@]}-1]}"
        unset "parts[${#parts[@]}-1]"
    fi
    local command="${parts[1]:-}"
@TABLE@
    for candidate in "${parts[@]:2}"; do
        if [[ -n $option ]]; then option=""
        elif [[ " $valued " == *" $candidate "* ]]; then option="$candidate"
        elif [[ $candidate != -* ]]; then n=$((n + 1)); fi
    done
    if [[ -n $option ]]; then
        most=0 values=""
@VALUES@
    fi
    COMPREPLY=()
    if [[ -n $values ]]; then offered="${values// /$'\n'}"
    elif [[ $word == -* && -z $option ]]; then offered="${options// /$'\n'}"
    elif (( n < most )); then offered="$("${1/#\~\//$HOME/}" __complete $names 2>/dev/null)"; fi
    while IFS= read -r candidate; do
        [[ -n $candidate && $candidate == "$word"* ]] && COMPREPLY+=("$candidate")
    done <<< "$offered"
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then  # bash replaces what follows it
        local before="${word%"${word##*:}"}"
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
}
complete -o default -F _gptoss gptoss
"""

_ZSH = r"""#compdef gptoss
# Completion of gptoss for zsh: source <(gptoss completion zsh)
_gptoss() {
    local command="${words[2]}" word="${words[CURRENT]}" option="" candidate
    local options="" valued="" values="" names="" n=0 most=0
    local -a described
    if (( CURRENT == 2 )); then
        if [[ $word == -* ]]; then compadd -- --help --version; return; fi
        described=(
@COMMANDS@
        )
        _describe 'command' described
        return
    fi
@TABLE@
    for candidate in "${(@)words[3,CURRENT-1]}"; do
        if [[ -n $option ]]; then option=""
        elif [[ " $valued " == *" $candidate "* ]]; then option="$candidate"
        elif [[ $candidate != -* ]]; then n=$((n + 1)); fi
    done
    if [[ -n $option ]]; then
        most=0 values=""
@VALUES@
    fi
    if [[ -n $values ]]; then compadd -- ${=values}
    elif [[ $word == -* && -z $option ]]; then compadd -- ${=options}
    elif (( n < most )); then
        compadd -- ${(f)"$(${words[1]/#\~\//$HOME/} __complete $names 2>/dev/null)"} || _files
    else _files; fi
}
if [[ ${funcstack[1]-} == _gptoss ]]; then
    _gptoss "$@"
else
    (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
    compdef _gptoss gptoss
fi
"""

_FISH = r"""# Completion of gptoss for fish: gptoss completion fish | source
function __gptoss_takes --argument-names command most --description 'room for one more model'
    string match -qr -- '^[./~]' (commandline -ct); and return 1
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = $command; or return 1
    set -l n 0
    set -l option ''
    for word in $words[3..-1]
        if test -n "$option"
            set option ''
        else if contains -- $word $argv[3..-1]
            set option $word
        else if not string match -q -- '-*' $word
            set n (math $n + 1)
        end
    end
    test -z "$option"; and test $n -lt $most
end
function __gptoss_names
    set -l words (commandline -opc)
    $words[1] __complete $argv 2>/dev/null
end
complete -c gptoss -n __fish_use_subcommand -f
complete -c gptoss -n __fish_use_subcommand -l help -d 'Show the help.'
complete -c gptoss -n __fish_use_subcommand -l version -d 'Show the version.'
"""

_POWERSHELL = r"""# gptoss completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName gptoss -ScriptBlock {
    param($word, $ast, $position)
    $commands = @{
@TABLE@
    }
    $parts = @($ast.CommandElements | Where-Object { $_.Extent.EndOffset -lt $position } |
        ForEach-Object { $_.ToString() })
    if ($parts.Count -lt 2) {
        $offered = $commands.Keys | Sort-Object
    } else {
        $command = $commands[$parts[1]]
        $n = 0; $option = ''
        foreach ($part in ($parts | Select-Object -Skip 2)) {
            if ($option) { $option = '' }
            elseif ($command.values.ContainsKey($part)) { $option = $part }
            elseif (-not $part.StartsWith('-')) { $n++ }
        }
        if ($option) { $offered = $command.values[$option] }
        elseif ($word.StartsWith('-')) { $offered = $command.options }
        elseif ($n -lt $command.most) { $offered = & $parts[0] __complete $command.names 2>$null }
        else { $offered = $command.words }
    }
    $offered | Where-Object { $_ -and $_.StartsWith($word) } | ForEach-Object {
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }
}
"""


@dataclass(frozen=True)
class Option:
    """One option of a command.

    Attributes:
        flags: All its spellings.
        takes_value: Whether a word of its own follows it.
        values: The words that may follow, if they are few.
        names: The models that may follow.
    """

    flags: tuple[str, ...]
    help: str
    takes_value: bool
    values: tuple[str, ...]
    names: NameKind | None


@dataclass(frozen=True)
class Command:
    """Words that can follow a command: options, and up to `n_models` models of a kind."""

    name: str
    help: str
    options: tuple[Option, ...]
    values: tuple[str, ...]
    names: NameKind
    n_models: int


def bash(commands: Sequence[Command]) -> str:
    """Works from bash 3.2 on, which macOS has, and without the package bash-completion."""
    first = " ".join(command.name for command in commands)
    table = f'    case "$command" in\n        "") values="{first}"\n'
    table += '            [[ $word == -* ]] && values="--help --version" ;;\n'
    table += f"{_cases(commands)}\n    esac"
    return _BASH.replace("@TABLE@", table).replace("@VALUES@", _value_cases(commands))


def zsh(commands: Sequence[Command]) -> str:
    """Works sourced, and as a file `_gptoss` in a folder of `fpath`."""
    described = "\n".join(
        f"            {_single_quoted(f'{each.name}:{each.help}')}" for each in commands
    )
    table = f'    case "$command" in\n{_cases(commands)}\n    esac'
    script = _ZSH.replace("@COMMANDS@", described).replace("@TABLE@", table)
    return script.replace("@VALUES@", _value_cases(commands))


def fish(commands: Sequence[Command]) -> str:
    """A declaration for each command and option."""
    lines = []
    for command in commands:
        help_text = _single_quoted(command.help)
        lines.append(
            f"complete -c gptoss -n __fish_use_subcommand -a {command.name} -d {help_text}"
        )
        condition = f"-n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            lines.append(f"complete -c gptoss {condition} {_fish_option(option)}")
        if command.n_models:
            valued = " ".join(_flags(command, valued=True))
            takes = f"-n '__gptoss_takes {command.name} {command.n_models} {valued}'"
            lines.append(f"complete -c gptoss {takes} -f -a '(__gptoss_names {command.names})'")
        if command.values:
            words = " ".join(command.values)
            lines.append(f"complete -c gptoss {condition} -f -a '{words}'")
    return _FISH + "\n".join(lines) + "\n"


def powershell(commands: Sequence[Command]) -> str:
    """A table of hashes, read by one completer."""
    rows = []
    for command in commands:
        values = "; ".join(
            f"'{flag}' = {_powershell_list(option.values)}"
            for option in command.options
            if option.takes_value
            for flag in option.flags
        )
        options, words = _powershell_list(_flags(command)), _powershell_list(command.values)
        rows.append(
            f"        '{command.name}' = @{{ names = '{command.names}'; most = {command.n_models}; "
            f"options = {options}; words = {words}; values = @{{ {values} }} }}"
        )
    return _POWERSHELL.replace("@TABLE@", "\n".join(rows))


def _cases(commands: Sequence[Command]) -> str:
    """Return what a command offers, as assignments that bash and zsh read alike."""
    lines = []
    for command in commands:
        flags, valued = " ".join(_flags(command)), " ".join(_flags(command, valued=True))
        lines.append(
            f"        {command.name}) names={command.names} most={command.n_models} "
            f'options="{flags}" valued="{valued}" values="{" ".join(command.values)}" ;;'
        )
    return "\n".join(lines)


def _value_cases(commands: Sequence[Command]) -> str:
    lines = []
    for command in commands:
        for option in command.options:
            pattern = "|".join(f'"{command.name} {flag}"' for flag in option.flags)
            if option.values:
                lines.append(f'            {pattern}) values="{" ".join(option.values)}" ;;')
            elif option.names:
                lines.append(f"            {pattern}) names={option.names} n=0 most=1 ;;")
    return '        case "$command $option" in\n' + "\n".join(lines) + "\n        esac"


def _flags(command: Command, *, valued: bool = False) -> list[str]:
    """Its options in all spellings, or of those that take a value."""
    options = [option for option in command.options if option.takes_value or not valued]
    return [flag for option in options for flag in option.flags]


def _fish_option(option: Option) -> str:
    words = [
        f"-l {flag.removeprefix('--')}" if flag.startswith("--") else f"-s {flag[1:]}"
        for flag in option.flags
    ]
    if option.values:
        words.append(f"-x -a '{' '.join(option.values)}'")
    elif option.names:
        words.append(f"-x -a '(__gptoss_names {option.names})'")
    elif option.takes_value:
        words.append("-r")
    return f"{' '.join(words)} -d {_single_quoted(option.help)}"


def _single_quoted(text: str) -> str:
    return "'" + text.replace("\\", "").replace("'", "’") + "'"


def _powershell_list(words: Sequence[str]) -> str:
    quoted = ", ".join(f"'{word}'" for word in words)
    return f"@({quoted})"
