"""The countries and capitals that the model knows by heart, and what else people call a country."""

_PAIRS = """
Afghanistan: Kabul; Albania: Tirana; Algeria: Algiers; Andorra: Andorra la Vella; Angola: Luanda;
Antigua and Barbuda: St. John's; Argentina: Buenos Aires; Armenia: Yerevan; Australia: Canberra;
Austria: Vienna; Azerbaijan: Baku; Bahamas: Nassau; Bahrain: Manama; Bangladesh: Dhaka;
Barbados: Bridgetown; Belarus: Minsk; Belgium: Brussels; Belize: Belmopan; Benin: Porto-Novo;
Bhutan: Thimphu; Bolivia: Sucre; Bosnia and Herzegovina: Sarajevo; Botswana: Gaborone;
Brazil: Brasília; Brunei: Bandar Seri Begawan; Bulgaria: Sofia; Burkina Faso: Ouagadougou;
Burundi: Gitega; Cambodia: Phnom Penh; Cameroon: Yaoundé; Canada: Ottawa; Cape Verde: Praia;
Central African Republic: Bangui; Chad: N'Djamena; Chile: Santiago; China: Beijing;
Colombia: Bogotá; Comoros: Moroni; Costa Rica: San José; Croatia: Zagreb; Cuba: Havana;
Cyprus: Nicosia; Czechia: Prague; Denmark: Copenhagen; Djibouti: Djibouti; Dominica: Roseau;
Dominican Republic: Santo Domingo; Ecuador: Quito; Egypt: Cairo; El Salvador: San Salvador;
Eritrea: Asmara; Estonia: Tallinn; Eswatini: Mbabane; Ethiopia: Addis Ababa; Fiji: Suva;
Finland: Helsinki; France: Paris; Gabon: Libreville; Gambia: Banjul; Georgia: Tbilisi;
Germany: Berlin; Ghana: Accra; Greece: Athens; Grenada: St. George's; Guatemala: Guatemala City;
Guinea: Conakry; Guinea-Bissau: Bissau; Guyana: Georgetown; Haiti: Port-au-Prince;
Honduras: Tegucigalpa; Hungary: Budapest; Iceland: Reykjavik; India: New Delhi;
Indonesia: Jakarta; Iran: Tehran; Iraq: Baghdad; Ireland: Dublin; Israel: Jerusalem; Italy: Rome;
Ivory Coast: Yamoussoukro; Jamaica: Kingston; Japan: Tokyo; Jordan: Amman; Kazakhstan: Astana;
Kenya: Nairobi; Kiribati: Tarawa; Kosovo: Pristina; Kuwait: Kuwait City; Kyrgyzstan: Bishkek;
Laos: Vientiane; Latvia: Riga; Lebanon: Beirut; Lesotho: Maseru; Liberia: Monrovia;
Libya: Tripoli; Liechtenstein: Vaduz; Lithuania: Vilnius; Luxembourg: Luxembourg;
Madagascar: Antananarivo; Malawi: Lilongwe; Malaysia: Kuala Lumpur; Maldives: Malé; Mali: Bamako;
Malta: Valletta; Marshall Islands: Majuro; Mauritania: Nouakchott; Mauritius: Port Louis;
Mexico: Mexico City; Micronesia: Palikir; Moldova: Chișinău; Monaco: Monaco;
Mongolia: Ulaanbaatar; Montenegro: Podgorica; Morocco: Rabat; Mozambique: Maputo;
Myanmar: Naypyidaw; Namibia: Windhoek; Nepal: Kathmandu; Netherlands: Amsterdam;
New Zealand: Wellington; Nicaragua: Managua; Niger: Niamey; Nigeria: Abuja;
North Korea: Pyongyang; North Macedonia: Skopje; Norway: Oslo; Oman: Muscat; Pakistan: Islamabad;
Palau: Ngerulmud; Panama: Panama City; Papua New Guinea: Port Moresby; Paraguay: Asunción;
Peru: Lima; Philippines: Manila; Poland: Warsaw; Portugal: Lisbon; Qatar: Doha;
Romania: Bucharest; Russia: Moscow; Rwanda: Kigali; Saint Lucia: Castries; Samoa: Apia;
San Marino: San Marino; Saudi Arabia: Riyadh; Senegal: Dakar; Serbia: Belgrade;
Seychelles: Victoria; Sierra Leone: Freetown; Singapore: Singapore; Slovakia: Bratislava;
Slovenia: Ljubljana; Solomon Islands: Honiara; Somalia: Mogadishu; South Africa: Pretoria;
South Korea: Seoul; South Sudan: Juba; Spain: Madrid; Sri Lanka: Sri Jayawardenepura Kotte;
Sudan: Khartoum; Suriname: Paramaribo; Sweden: Stockholm; Switzerland: Bern; Syria: Damascus;
Taiwan: Taipei; Tajikistan: Dushanbe; Tanzania: Dodoma; Thailand: Bangkok; Timor-Leste: Dili;
Togo: Lomé; Tonga: Nukuʻalofa; Trinidad and Tobago: Port of Spain; Tunisia: Tunis; Turkey: Ankara;
Turkmenistan: Ashgabat; Tuvalu: Funafuti; Uganda: Kampala; Ukraine: Kyiv;
United Arab Emirates: Abu Dhabi; United Kingdom: London; United States: Washington, D.C.;
Uruguay: Montevideo; Uzbekistan: Tashkent; Vanuatu: Port Vila; Venezuela: Caracas; Vietnam: Hanoi;
Yemen: Sanaa; Zambia: Lusaka; Zimbabwe: Harare
"""
CAPITALS: dict[str, str] = {
    country: capital
    for country, _, capital in (
        pair.partition(": ") for pair in _PAIRS.strip().replace("\n", " ").split("; ")
    )
}
WITH_ARTICLE = frozenset((
    "Bahamas", "Central African Republic", "Comoros", "Dominican Republic", "Gambia",
    "Ivory Coast", "Maldives", "Marshall Islands", "Netherlands", "Philippines", "Seychelles",
    "Solomon Islands", "United Arab Emirates", "United Kingdom", "United States",
))  # fmt: skip
OTHER_NAMES = {
    "United States": ("USA", "US", "U.S.", "United States of America", "America"),
    "United Kingdom": ("UK", "U.K.", "Great Britain", "Britain"),
    "United Arab Emirates": ("UAE", "Emirates"),
    "Czechia": ("Czech Republic",),
    "Netherlands": ("Holland",),
    "Ivory Coast": ("Côte d'Ivoire",),
    "Turkey": ("Türkiye",),
    "Eswatini": ("Swaziland",),
    "Cape Verde": ("Cabo Verde",),
    "Timor-Leste": ("East Timor",),
    "Bosnia and Herzegovina": ("Bosnia",),
    "Russia": ("Russian Federation",),
    "Gambia": ("The Gambia",),
    "Bahamas": ("The Bahamas",),
    "Ireland": ("Republic of Ireland",),
}
_NAMES = {*CAPITALS, *(name for names in OTHER_NAMES.values() for name in names)}
_LOWER_NAMES = frozenset(name.lower() for name in _NAMES)


def is_country(name: str) -> bool:
    """Whether the name, in any case, is one that the model has an answer for."""
    return name.lower().removeprefix("the ") in _LOWER_NAMES


def spell(country: str) -> str:
    """Name a country as it stands inside a sentence."""
    return f"the {country}" if country in WITH_ARTICLE else country
