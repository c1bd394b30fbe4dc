# Install gptoss on Windows 10 or 11, for you alone:
#   powershell -ExecutionPolicy Bypass -File installers\install.ps1 [--help]
# Finds a Python, or fetches one with uv, and hands over to setup_app.py: next to it in a clone, in
# the source archive next to it among a release's files.
$ErrorActionPreference = 'Stop'
$ProgressPreference = 'SilentlyContinue'  # Windows PowerShell downloads many times slower with it

# Meant for one Python, with which no other starts.
$env:PYTHONHOME = $null

function Stop-Setup([string] $Message, [string] $Hint) {
    [Console]::Error.WriteLine($Message)
    [Console]::Error.WriteLine($Hint)
    exit 1
}

if (-not $env:LOCALAPPDATA) {
    Stop-Setup 'LOCALAPPDATA names no folder.' 'Run this as a user with a profile.'
}
$App = Join-Path $env:LOCALAPPDATA 'gptoss\app'
$PythonWanted = '3.13'

# A Python that can make environments. The python.exe of the Microsoft Store is only a sign to it,
# and exits with an error.
function Find-Python {
    $Check = 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))'
    foreach ($Name in 'python', 'python3', 'py') {
        $Found = Get-Command $Name -CommandType Application -ErrorAction SilentlyContinue |
            Select-Object -First 1
        if (-not $Found) { continue }
        try { & $Found.Source -c $Check 2>$null } catch { continue }
        if ($LASTEXITCODE -eq 0) { return $Found.Source }
    }
    return $null
}

# uv from its makers, or with --index from a package index through any Python that has pip.
function Find-Uv([string] $Index) {
    $Folder = Join-Path $App 'uv'
    $Known = Get-Command uv -CommandType Application -ErrorAction SilentlyContinue |
        Select-Object -First 1
    if ($Known) { return $Known.Source }
    foreach ($Path in "$Folder\uv.exe", "$Folder\bin\uv.exe") {
        if (Test-Path -LiteralPath $Path) { return $Path }
    }
    New-Item -ItemType Directory -Force -Path $Folder | Out-Null
    Write-Host 'fetching uv, which brings a Python'
    if (-not $Index) {
        try {
            [Net.ServicePointManager]::SecurityProtocol = [Net.SecurityProtocolType]::Tls12
            $env:UV_UNMANAGED_INSTALL = $Folder
            $Script = Join-Path $Folder 'install.ps1'
            Invoke-WebRequest -UseBasicParsing https://astral.sh/uv/install.ps1 -OutFile $Script
            & powershell -NoProfile -ExecutionPolicy Bypass -File $Script | Out-Host
            if (Test-Path -LiteralPath "$Folder\uv.exe") { return "$Folder\uv.exe" }
        } catch {
            Write-Host "not from astral.sh: $_"
        }
    }
    $Options = @('-m', 'pip', 'install', '--quiet', '--target', $Folder)
    if ($Index) { $Options += @('--index-url', $Index) }
    Write-Host 'trying the package index'
    $env:PYTHONPATH = ''
    try { & python @Options uv | Out-Host } catch { Write-Host "not from the package index: $_" }
    if (Test-Path -LiteralPath "$Folder\bin\uv.exe") { return "$Folder\bin\uv.exe" }
    Stop-Setup 'No Python 3.11 or newer with venv is here, and uv, which could fetch one, is out of reach.' `
        'Install Python from python.org (winget install Python.Python.3.13) and run this again.'
}

$Index = ''
$IsDry = $false
for ($i = 0; $i -lt $args.Count; $i++) {
    if ($args[$i] -eq '--index' -and $i + 1 -lt $args.Count) { $Index = $args[$i + 1] }
    if ($args[$i] -like '--index=*') { $Index = $args[$i].Substring('--index='.Length) }
    if ($args[$i] -in '--dry-run', '--help', '-h') { $IsDry = $true }
}

$Python = Find-Python
if (-not $Python) {
    if ($IsDry) {
        Write-Host "No Python 3.11 or newer with venv is here: the installer would fetch uv, and with it"
        Write-Host "Python $PythonWanted, into $App. Nothing was changed."
        exit 0
    }
    $env:GPTOSS_UV = Find-Uv $Index
    $env:UV_PYTHON_INSTALL_DIR = Join-Path $App 'python'
    $env:UV_PYTHON_INSTALL_BIN = '0'
    $env:UV_PYTHON_INSTALL_REGISTRY = '0'
    $env:UV_SYSTEM_CERTS = $env:UV_NATIVE_TLS = '1'  # for a company's proxy; two names, by its age
    $env:UV_CACHE_DIR = Join-Path $App 'uv\cache'
    try { $Python = & $env:GPTOSS_UV python find --no-project '>=3.11' 2>$null } catch { }
    if (-not $Python) {
        Write-Host "fetching Python $PythonWanted"
        & $env:GPTOSS_UV python install $PythonWanted | Out-Host
        $Python = & $env:GPTOSS_UV python find --no-project $PythonWanted
    }
    if ($LASTEXITCODE -ne 0 -or -not $Python) {
        Stop-Setup "uv could not fetch Python $PythonWanted." `
            'Behind a proxy set HTTPS_PROXY, with a mirror UV_PYTHON_INSTALL_MIRROR; or install Python.'
    }
}

$Setup = Join-Path $PSScriptRoot 'setup_app.py'
if (Test-Path -LiteralPath $Setup) {
    & $Python $Setup @args
    exit $LASTEXITCODE
}
$Archive = @(Get-ChildItem -LiteralPath $PSScriptRoot -Filter 'gptoss_local-*.tar.gz')
if ($Archive.Count -ne 1) {
    Stop-Setup "No release's source is next to this script: $($Archive.Count) of gptoss_local-VERSION.tar.gz." `
        'Keep the files of one release in one folder, and install.ps1 with them.'
}
$Unpacked = Join-Path ([IO.Path]::GetTempPath()) "gptoss-$([Guid]::NewGuid())"
try {
    & $Python -m tarfile -e $Archive[0].FullName $Unpacked
    if ($LASTEXITCODE -ne 0) { Stop-Setup 'The source could not be unpacked.' 'Is the disk full?' }
    $Setup = Join-Path $Unpacked "$($Archive[0].Name -replace '\.tar\.gz$')\installers\setup_app.py"
    & $Python $Setup --release $PSScriptRoot @args
    $Code = $LASTEXITCODE
} finally {
    Remove-Item -LiteralPath $Unpacked -Recurse -Force -ErrorAction SilentlyContinue
}
exit $Code
