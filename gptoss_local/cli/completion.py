"""`gptoss completion`: a script that asks `gptoss __complete` for candidates at every Tab.

It asks the command as it was typed, so that a shell completes for the gptoss that it will run. No
shell evaluates what it prints.
"""

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    bash = "bash"
    zsh = "zsh"
    fish = "fish"
    powershell = "powershell"


# From bash 3.2 on, which macOS has, and without the package bash-completion.
_BASH = r"""# Completion of gptoss for bash: source <(gptoss completion bash)
_gptoss() {
    local IFS=$' \t\n' line="${COMP_LINE:0:COMP_POINT}" word candidate
    local -a parts=()
    read -r -a parts <<< "$line"  # not COMP_WORDS, which breaks names at their colons
    [[ $line == *[[:space:]] ]] && parts+=("")
    word="${parts[${#parts[@]}-1]}"
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        [[ -n $candidate ]] && COMPREPLY+=("$candidate")
    done <<< "$("${1/#\~\//$HOME/}" __complete "${parts[@]:1}" 2>/dev/null)"
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then  # bash replaces what follows it
        local before="${word%"${word##*:}"}"
        COMPREPLY=("${COMPREPLY[@]#"$before"}")
    fi
}
complete -o default -F _gptoss gptoss
"""

# Sourced, or as a file `_gptoss` in a folder of `fpath`.
_ZSH = r"""#compdef gptoss
# Completion of gptoss for zsh: source <(gptoss completion zsh)
_gptoss() {
    local -a lines=(${(f)"$(${words[1]/#\~\//$HOME/} __complete \
        "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)"})
    if (( $#lines )); then
        local -a offered=("${(@)lines%%$'\t'*}") shown=("${(@)lines/$'\t'/  -- }")
        compadd -l -d shown -a offered
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
function __gptoss_offers
    set -l words (commandline -opc)
    set -g __gptoss_offered ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
    test (count $__gptoss_offered) -gt 0
end
complete -c gptoss -n __gptoss_offers -f -a '$__gptoss_offered'
"""

_POWERSHELL = r"""# gptoss completion powershell | Out-String | Invoke-Expression
Register-ArgumentCompleter -Native -CommandName gptoss -ScriptBlock {
    param($word, $ast, $position)
    $parts = @($ast.CommandElements | Where-Object { $_.Extent.EndOffset -lt $position } |
        ForEach-Object { $_.ToString() })
    $before = @($parts | Select-Object -Skip 1)
    $last = if ($word) { $word } else { '""' }
    & $parts[0] __complete @before $last 2>$null | ForEach-Object {
        $offered, $about = $_ -split "`t", 2
        if (-not $about) { $about = $offered }
        [System.Management.Automation.CompletionResult]::new(
            $offered, $offered, 'ParameterValue', $about)
    }
}
"""

_SCRIPTS = {
    Shell.bash: _BASH,
    Shell.zsh: _ZSH,
    Shell.fish: _FISH,
    Shell.powershell: _POWERSHELL,
}


def completion(shell: Annotated[Shell, typer.Argument(help="Which shell.")]) -> None:
    """Print the completion script of a SHELL.

    bash, zsh: source <(gptoss completion bash); fish: gptoss completion fish | source;
    PowerShell: gptoss completion powershell | Out-String | Invoke-Expression. In a start-up file
    this works in every new terminal.
    """
    print(script_for(shell), end="")


def script_for(shell: Shell) -> str:
    """Return the completion script of a shell."""
    return _SCRIPTS[shell]
