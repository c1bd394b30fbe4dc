#compdef gptoss
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
