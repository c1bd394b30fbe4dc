# Completion of gptoss for bash: source <(gptoss completion bash)
# It runs in bash 3.2, which macOS has, and without the package bash-completion.
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
