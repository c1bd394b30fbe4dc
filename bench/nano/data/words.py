"""Word lists and sentence patterns: all the raw material that values are made of."""


def _words(text: str) -> list[str]:
    return text.split()


FIRST_NAMES = _words("""
Alice Bob Carol David Emma Frank Grace Henry Isabel Jack Karen Liam Maria Nathan Olivia Peter
Quinn Rachel Sarah Tom Victor Wendy Anna Ben Clara Daniel Elena George Hannah Ivan Julia Kevin
Laura Michael Nina Oscar Paul Rosa Simon Tina Sam Max Leo Mia Noah Zoe John Jane James Mary Robert
Linda William Susan Thomas Lisa Mark Steve Eric Adam
""")
LAST_NAMES = _words("""
Smith Johnson Brown Miller Davis Wilson Moore Anderson Thomas White Harris Martin
Garcia Clark Lewis Walker Hall Young Wright Hill Green Baker Carter Turner Parker Collins
Lopez Novak Schmidt Rossi Kim Chen
""")
ADJECTIVES = _words("""
ancient black blue brave bright broken busy calm clean clever cold common dark deep digital dry
dusty early empty famous fast final first foreign fresh full gentle golden gray green happy hard
heavy hidden high huge hungry large late lazy light local long low metal modern narrow new noisy
old open orange plastic polite poor precise proud purple quiet rare red rich rough round sad
second secret sharp shiny short silver simple sleepy slow small smooth soft square strange strong
sweet third tiny warm wet white wide wooden yellow young
""")
NOUNS = _words("""
airport apple backpack bag balloon barn basket battery beach bicycle bird blanket boat book bottle
box bread bridge bucket buffer bus butter cable cache cake camera candle canyon car carpet carrot
castle cat cave chair cheese child city clock cloud coffee computer cookie cottage cup database
desert doctor dog door drawer engine evening factory farmer fence field file fish flower folder
forest garden gate hammer harbor helmet highway hill honey horse hospital house island jacket
kettle key keyboard king kitchen knife ladder lake lamp laptop lemon letter library machine market
meadow mirror moon morning mountain museum music network notebook onion orange packet palace paper
park path pencil pepper phone picture pillow pixel plane planet plate potato printer queue report
rice river road robot rocket roof router salad satellite school screen sensor server ship shop
socket song soup spoon star station stone storm story street student sugar summer sun swamp
sweater table teacher temple tent theater thread ticket tomato tower train tree truck tunnel
umbrella valley village wall wallet waterfall wheel window winter
""")
VERBS = _words("""
breaks brings builds buys carries catches checks cleans collects counts covers crosses delivers
describes draws drops exports finds fixes follows guards hears helps hides holds imports inspects
keeps leaves lifts likes loves measures meets moves needs opens paints passes pulls pushes reaches
reads remembers repairs sees sells shows stores throws visits washes watches writes
""")
PREPOSITIONS = (
    """
near, behind, under, above, beside, inside, before, after, with, without, around, across from,
next to, far from
""".strip()
    .replace("\n", " ")
    .split(", ")
)
SYLLABLES = _words("""
a ba be bi bo bra bre ca ce cho co cra da de di do dra e el en fa fe fi fra ga ge gra ha he hi ho
i ja jo ka ke ki ko kra la le li lo lu ma me mi mo mu na ne ni no o or pa pe pi po pra qua ra re
ri ro ru sa se sha she si so sta ste ta te tha the ti to tra tri tu u va ve vi vo wa we wi za ze
zi zo
""")
ENDINGS = _words("""
a ber burg by dale den e ez field ford gard ham i is l land ler ley lia lis m mar n na nd nelli
nor nt o os ova port r ra ria rt s sen son ssen stad t ta ter ton tti us va vik ville wick
""")
CITIES = (
    """
New York, Los Angeles, Chicago, San Francisco, Boston, Seattle, Austin, Miami, Denver, Toronto,
Vancouver, Montreal, Sydney, Melbourne, Mumbai, Delhi, Shanghai, Hong Kong, Osaka, Kyoto,
Istanbul, Barcelona, Munich, Hamburg, Cologne, Frankfurt, Zurich, Geneva, Milan, Naples, Venice,
Lyon, Marseille, Porto, Dubai, Lagos, Rio de Janeiro, São Paulo, Medellín, Cape Town, Manchester,
Liverpool, Edinburgh, Glasgow, Krakow, Springfield, Portland, Dallas, Houston, Phoenix,
Philadelphia, Atlanta, Las Vegas, Nashville, Detroit, Salt Lake City, Honolulu, Anchorage, Buenos
Aires, Johannesburg, Casablanca, Bangalore, Kolkata, Chennai, Karachi, Lahore, Ho Chi Minh City,
Guangzhou, Shenzhen, Busan, Nagoya, Sapporo, Brisbane, Perth, Auckland, Valencia, Seville, Bilbao,
Turin, Florence, Palermo, Leipzig, Dresden, Stuttgart, Düsseldorf, Nuremberg, Gothenburg, Malmö,
Bergen, Aarhus, Rotterdam, Utrecht, Antwerp, Ghent, Bruges, Lille, Bordeaux, Toulouse, Nantes,
Nice, Basel, Lausanne, Salzburg, Graz, Innsbruck, Brno, Gdańsk, Wrocław, Cluj-Napoca,
Thessaloniki, Izmir, Haifa, Alexandria, Mombasa, Durban, Recife, Salvador, Curitiba, Guadalajara,
Monterrey, Cancún, Quebec City, Calgary, Winnipeg, Halifax, Leeds, Bristol, Cardiff, Belfast,
Cork, Galway, Kabul, Tirana, Algiers, Andorra la Vella, Luanda, Buenos Aires, Yerevan, Canberra,
Vienna, Baku, Nassau, Manama, Dhaka, Bridgetown, Minsk, Brussels, Belmopan, Porto-Novo, Thimphu,
Sucre, Gaborone, Brasília, Bandar Seri Begawan, Sofia, Gitega, Phnom Penh, Yaoundé, Ottawa,
N'Djamena, Santiago, Beijing, Bogotá, Moroni, Zagreb, Havana, Nicosia, Prague, Copenhagen,
Djibouti, Roseau, Quito, Cairo, San Salvador, Asmara, Tallinn, Mbabane, Addis Ababa, Suva,
Helsinki, Paris, Libreville, Banjul, Tbilisi, Berlin, Accra, Athens, St. George's, Guatemala City,
Conakry, Georgetown, Port-au-Prince, Tegucigalpa, Budapest, Reykjavik, New Delhi, Jakarta, Tehran,
Baghdad, Dublin, Jerusalem, Rome, Kingston, Tokyo, Amman, Astana, Nairobi, Tarawa, Pristina,
Kuwait City, Bishkek, Vientiane, Riga, Beirut, Maseru, Monrovia, Tripoli, Vaduz, Vilnius,
Luxembourg, Antananarivo, Lilongwe, Kuala Lumpur, Malé, Bamako, Valletta, Nouakchott, Port Louis,
Mexico City, Chișinău, Monaco, Ulaanbaatar, Podgorica, Rabat, Maputo, Naypyidaw, Windhoek,
Kathmandu, Amsterdam, Wellington, Managua, Niamey, Abuja, Pyongyang, Skopje, Oslo, Muscat,
Islamabad, Panama City, Asunción, Lima, Manila, Warsaw, Lisbon, Doha, Bucharest, Moscow, Kigali,
Apia, San Marino, Riyadh, Dakar, Belgrade, Victoria, Freetown, Singapore, Bratislava, Ljubljana,
Mogadishu, Pretoria, Seoul, Madrid, Colombo, Khartoum, Paramaribo, Stockholm, Bern, Damascus,
Taipei, Dushanbe, Dodoma, Bangkok, Lomé, Nukuʻalofa, Tunis, Ankara, Ashgabat, Kampala, Kyiv, Abu
Dhabi, London, Montevideo, Tashkent, Port Vila, Caracas, Hanoi, Sanaa, Lusaka, Harare
""".strip()
    .replace("\n", " ")
    .split(", ")
)
CODE_WORDS = _words("""
get set load make find my do is run tmp user users item items name names value values key keys
index count total result results config settings data path file files line lines text token tokens
model models server client request response handler parser buffer queue cache node nodes tree list
map row rows column table cell state event events error errors message messages session context
input output source target start end width height size limit offset max min sum mean first last
next prev parent child children left right open close read write send receive update delete insert
remove add append pop push init setup test check valid parse format encode decode render build
compile load save store fetch query filter sort merge split join copy move rename convert process
compute calculate print log debug info warn retry timeout delay interval timer date time year
month day price amount balance order orders product cart customer account email address phone city
country color image photo video audio player score level enemy weapon map grid point vector matrix
angle speed distance mass energy weight batch epoch loss rate step layer head mask loader worker
thread task job lock pool socket port host url route page view template widget button label form
field menu dialog window screen pixel font theme style flag option mode kind type class group role
admin guest owner member team project issue commit branch tag release version build patch
""")
FOLDERS = _words("""
src lib app tests test docs doc scripts tools bin build dist data assets static public config etc
home usr var tmp opt work core utils common api server client models views controllers services
components pages hooks styles images logs backup archive notebooks examples packages modules
internal cmd pkg include vendor resources templates locales fixtures migrations reports projects
repo workspace my-app backend frontend mobile web infra deploy docker ci .github .config .vscode
.cache .git node_modules
""")
EXTENSIONS = _words("""
py js ts tsx jsx json md txt yaml yml toml html css scss c h cpp hpp rs go java kt rb php sh sql
csv xml ini cfg log env lock svg vue swift lua
""")
SENTENCES = (
    "The {adj} {noun} {verb} the {adj2} {noun2}.",
    "The {noun} is {prep} the {adj} {noun2}.",
    "A {adj} {noun} {verb} the {noun2} {prep} the {noun3}.",
    "In the {noun} there is a {adj} {noun2} and a {adj2} {noun3}.",
    "{name} {verb} the {noun} {prep} the {adj} {noun2}.",
    "There are {n} {adj} things in the {noun}, but the {noun2} is {adj2}.",
    "{name} {verb} a {adj} {noun} in {city}.",
    "Yesterday {name} was in {city} with a {noun}.",
    "No {noun} is as {adj} as the {noun2} of {name}.",
    "When the {noun} is {adj}, {name} {verb} the {noun2}.",
    "We have {n} {noun}s, and each {verb} a {adj} {noun2}.",
    "It takes {n} minutes from the {noun} to the {noun2} {prep} {city}.",
    "Every {noun} in {city} {verb} its {noun2}, says {name}.",
    "Nobody knows why the {adj} {noun} {verb} the {noun2}.",
)
COMMANDS = (
    "ls",
    "ls -la {folder}",
    "ls -la",
    "pwd",
    "whoami",
    "date",
    "uname -a",
    "df -h",
    "free -m",
    "echo {word}",
    "echo '{text}'",
    'echo "{text}"',
    "echo $HOME",
    "echo {n}",
    "cat {path}",
    "head -n {n} {path}",
    "tail -n {n} {path}",
    "wc -l {path}",
    "grep -rn {word} {folder}",
    "grep -i '{word}' {path}",
    "find . -name '*.{word}'",
    "find {folder} -type f | head -{n}",
    "mkdir -p {folder}/{word}",
    "rm -f {path}",
    "cp {path} {folder}/",
    "mv {path} {name}.bak",
    "touch {path}",
    "chmod +x {path}",
    "python {path}",
    "python3 -c 'print({n})'",
    "python -m {word}",
    "node {path}",
    "npm install {word}",
    "npm run {word}",
    "npm test",
    "pip install {name}",
    "pytest",
    "pytest {path} -k {name} -x",
    "git status",
    "git log --oneline -{n}",
    "git diff {path}",
    "git commit -m '{text}'",
    "git checkout -b {word}/{name}",
    "git add {path}",
    "cargo build --{word}",
    "cargo test {name}",
    "go test ./{folder}/...",
    "make {word}",
    "make -j{n}",
    "docker ps -a",
    "docker run --rm -p {n}:{n} {word}",
    "curl -s http://localhost:{n}/{word}",
    "sed -n {n}p {path}",
    "sed -i 's/{word}/{name}/g' {path}",
    "sort {path} | uniq -c",
    "kill -9 {n}",
    "ps aux | grep {word}",
    "tar -czf {word}.tar.gz {folder}",
    "export {name}={n}",
    "cd {folder} && ls",
    "sleep {n}",
    "which {word}",
    "du -sh {folder}",
    "env | grep {word}",
    "ruff check {folder}",
    "mypy {path}",
    "uv run {name}",
    "seq 1 {n}",
    "{word} --help",
    "{word} --{name} {n} {path}",
    "{name} {word}",
)
CODE_LINES = (
    "{a} = {n}",
    "{a} = {b} + {c}",
    "{a} = {b}({c})",
    "{a} = {b}.{c}",
    "{a} += {n}",
    "{a} -= {b}",
    "{a}({b}, {c})",
    "{a}.{b}({c})",
    "return {a}",
    "return {a} + {b}",
    "return {a}({b}, {n})",
    "def {a}({b}):",
    "def {a}({b}, {c}={n}):",
    "def {a}(self, {b}):",
    "class {a}:",
    "class {a}({b}):",
    "for {a} in {b}:",
    "for {a} in range({n}):",
    "if {a} > {n}:",
    "if {a} == {b}:",
    "if not {a}:",
    "elif {a} < {b}:",
    "else:",
    "while {a} < {n}:",
    "with open({a}) as {b}:",
    "try:",
    "except {a}:",
    "raise {a}({b})",
    "import {a}",
    "from {a} import {b}",
    "print({a})",
    'print("{text}")',
    "assert {a} == {n}",
    "{a} = [{b}, {c}]",
    '{a} = {{"{b}": {n}}}',
    '{a}["{b}"] = {c}',
    "pass",
    "# {text}",
    "# {a}: {b}",
    "# {n} {a} per {b}",
    "del {a}",
    "{a} = [{b} for {b} in {c}]",
    "{a} = lambda {b}: {b} * {n}",
    "self.{a} = {b}",
    "self.{a}.{b}({n})",
    "yield {a}",
    "@{a}",
    "const {a} = {b};",
    "let {a} = {n};",
    "function {a}({b}, {c}) {{",
    "}}",
    "if ({a} > {n}) {{",
    "return {a};",
    "{a}.push({b});",
    "export default {a};",
    'import {{ {a} }} from "{b}";',
    "for (int {a} = 0; {a} < {n}; {a}++) {{",
    "int {a} = {n};",
    "#include <{a}.h>",
    "// {text}",
    "let mut {a} = {b}::{c}({n});",
    "pub fn {a}({b}: {c}) -> u32 {{",
    "{a}: {b}",
    "{a}: {n}",
    "- {a}",
    '{a} = "{text}"',
    '<{a} {b}="{n}">',
    "</{a}>",
    "## {a} {b}",
    "{a},{b},{n}",
    "SELECT {a} FROM {b} WHERE {c} = {n};",
    "{a}: list[{b}] = []",
    "async def {a}({b}):",
    "await {a}({b})",
    "{a} = await {b}.{c}()",
    "console.log({a});",
    'logger.info("{text}")',
    "{a} = {b} if {c} else {n}",
    "return [{a}, {b}, {c}]",
    '{a} = os.environ["{b}"]',
)
