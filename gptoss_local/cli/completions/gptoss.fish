# Completion of gptoss for fish: gptoss completion fish | source
function __gptoss_offers
    set -l words (commandline -opc)
    set -g __gptoss_offered ($words[1] __complete $words[2..-1] (commandline -ct) 2>/dev/null)
    test (count $__gptoss_offered) -gt 0
end
complete -c gptoss -n __gptoss_offers -f -a '$__gptoss_offered'
