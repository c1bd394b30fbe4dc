# gptoss completion powershell | Out-String | Invoke-Expression
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
