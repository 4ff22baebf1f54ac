"""Which words of a caption speak of the picture, and which are left by cameras, shops, stock sites and page "
"templates.

Rules on text alone, with word lists in a dozen languages; none of them looks at the picture or knows grammar. A caption
is judged as it would read when repaired: entities and tags resolved, mojibake undone (by ftfy, where installed), the
phrases that stock sites and search engines hang on taken off.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Collection
from functools import cache, lru_cache

LONGEST = 1000
"""Characters of a caption that are looked at; what stands beyond says nothing else."""
WORD = re.compile(r"[^\W\d_]{2,}|[\u3400-\u9fff]")

_IMAGE_FILE = re.compile(r"\.(jpe?g|png|gif|webp|bmp|tiff?|svg|avif|heic|jp2|jxl|raw|cr2|nef|dng|psd)$", re.IGNORECASE)
_ADDRESS = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://|www\.)\S+|(?<![\w@.])(?:[a-z0-9-]{2,}\.)+(?:com|org|net|info|biz|de|fr|it|es|nl|"
    r"pl|ru|cn|jp|io|"
    r"shop|(?:co|org|com)\.[a-z]{2})(?:/\S*)?(?![\w.])", re.IGNORECASE)  # fmt: skip
_EMAIL = re.compile(r"(?:mailto:)?[\w.+-]+@[\w-]+\.[\w.-]+")
_TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]{0,500}>|\[/?[a-z]{1,10}(?:[ =][^\]]{0,200})?\]", re.DOTALL)
_TEMPLATE = re.compile(
    r"\{\{.*?\}\}|\$\{.*?\}|\{%.*?%\}|<%.*?%>|<\?.*?(?:\?>|$)|%[a-z_]+%|\[object \w+\]|\[(?:image|caption|alt|"
    r"title)\]",
    re.IGNORECASE | re.DOTALL)  # fmt: skip
_HANDLE = re.compile(r"[#@＃＠][\w.]+")
_SUFFIX = re.compile(
    r"[\s|:,·•–—-]*(?:(?:royalty[- ]free|free|premium|editorial|vector|high[- ]quality) )*"
    r"(?:stock (?:photo|image|picture|vector|illustration|footage|photography|pictures|clip ?art)s?"
    r"(?: (?:and|&) royalty[- ]free images?)?(?: by \S+)?|download scientific diagram|scientific diagram|"
    r"(?:alamy|shutterstock|i?stock ?photo|istock|getty images|dreamstime|depositphotos|adobe stock|123rf|pinterest|"
    r"wikipedia|wikimedia commons|flickr|etsy|ebay|amazon(?:\.\w+)*|facebook|instagram|youtube)(?: stock photo)?)"
    r"(?:[\s:#|,–—-]*[A-Z]{0,3}\d[\w-]*)?\s*$", re.IGNORECASE)  # fmt: skip
_PREFIX = re.compile(
    r"^(?:(?:image|picture|photo|search) results?(?: for)?|(?:images|pictures|photos) for|"
    r"bildergebnis(?:se)? (?:für|zu)|"
    r"résultats? de recherche d['’]images? pour|resultado de imagen para|risultat[oi] immagini? per|"
    r"картинки по запросу)(?:\s+|$)", re.IGNORECASE)
_CAMERA = re.compile(
    r"^(?:fb[ _-]?)?(?:whatsapp (?:image|bild)|screen ?shot|screenshot|bildschirmfoto|capture d['’]écran|"
    r"captura de (?:pantalla|ecrã|tela)|schermata|schermafbeelding|snímek obrazovky|zrzut ekranu|снимок экрана|"
    r"スクリーンショット|img|image|dsc[nf]?|pic|picture|photo|foto|vid|pxl|received|scan|slide|file|untitled|dcim|gopr|dji|"
    r"mvimg|unnamed|download|bild|imagen|unbenannt|sans titre|без названия)(?:[ _.(#-]*(?:\d|"
    r"v\d))", re.IGNORECASE)  # fmt: skip
_BESIDE_NUMBERS = frozenset(
    "at am pm um copy kopie copie copia wa edit edited final a by of cr img dsc à alle om jpg jpeg png jan feb "
    "mar apr may "
    "jun jul aug sep oct nov dec burst hdr cover portrait night pano mp uhr".split()
)
_CREDIT = re.compile(
    r"^(?:(?:photo|image|picture|foto|bild|credit|photo credit|image credit|source|quelle|crédit(?: photo)?|©|"
    r"copyright|"
    r"\(c\)|courtesy(?: of)?|photographer|fotograf)s?(?: by)?[\s:/©]+(?:by |von |par |de )?)(?P<who>.{2,60})$",
    re.IGNORECASE)  # fmt: skip
_AGENCY = re.compile(
    r"\b(?:getty|reuters|ap|afp|dpa|epa|shutterstock|istock|alamy|unsplash|pexels|pixabay|flickr|wikimedia|imago|"
    r"all rights reserved|alle rechte vorbehalten|tous droits réservés|images|photography|archives?)\b|"
    r"\d{4}", re.IGNORECASE)
_BY_NAME = re.compile(r"\S+(?: credit)?s? (?:by|von|par|courtesy)\b|[©(]|courtesy|copyright", re.IGNORECASE)
_PART = re.compile(
    r"^(?:sku|ref|item|art(?:icle|ikel)?|artikel-?(?:nr|nummer)|art\.?-?nr|model|part|product|id|no|nr|asin|"
    r"isbn|ean|код|"
    r"артикул|型号|品番)[\s.:#№-]*(?:no\.?\s*)?[\w-]*\d{3}[\w-]*$", re.IGNORECASE)  # fmt: skip
_CALENDAR = frozenset(
    "january february march april may june july august september october november december jan feb mar apr jun "
    "jul aug sep "
    "sept oct nov dec monday tuesday wednesday thursday friday saturday sunday januar februar märz mai juni "
    "juli oktober "
    "dezember janvier février mars avril juin juillet août septembre octobre novembre décembre enero febrero "
    "marzo abril "
    "mayo junio julio agosto septiembre octubre noviembre diciembre the of on de am pm at th st nd rd".split()
)
_NOISE = frozenset(
    "image images img picture pictures photo photos photograph pic pics untitled placeholder thumbnail thumb "
    "logo icon "
    "banner spacer default screenshot unnamed download file scan null none undefined test avatar alt caption "
    "lorem ipsum "
    "advertisement sponsored loading lazy eur usd gbp price preis prix slider carousel favicon pixel bild "
    "bilder foto fotos "
    "abbildung vorschaubild platzhalter imagen imágenes immagine immagini imagem imagens afbeelding zdjęcie "
    "obraz obrázek "
    "kuva billede bilde изображение фото фотография картинка 图片 照片 圖片 画像 写真 이미지 사진 صورة तस्वीर".split()
)
_GLUE = frozenset(
    "visit click here to enlarge view larger zoom full size read more see next previous prev slide gallery hero "
    "cover header "
    "featured main product item post article blog page site website coming soon not available no unavailable "
    "found missing "
    "text description title of the for and in an by this new copy final edit edited version large small big "
    "medium my our "
    "profile user author from on is has been with only figure fig abb abbildung show details vergrößern klicken "
    "hier zum "
    "größere ansicht kein verfügbar agrandir cliquez pour cliquer ici voir plus lire la suite haga clic para "
    "ampliar ver más "
    "clicca per ingrandire klik om te vergroten нажмите чтобы увеличить без названия 点 击 放 大 查 看 未 命 名 暂 无 "
    "die das der des du une non sans titre del producto artículo le de un le les el los las una il lo pas "
    "disponible disponible geen beschikbaar brak".split()
)
_HAN = re.compile("[\u3400-\u9fff]")
_HAN_WORDS = re.compile("|".join([*sorted(word for word in _NOISE if _HAN.search(word)), "."]))
_PAGE = frozenset(  # whole captions that pages show instead of words
    "click to enlarge|click here|click to view|click for larger view|read more|learn more|coming soon|not available|"
    "view larger|view full size|see more|show more|back to top|skip to content|subscribe now|sign up|log in|"
    "share this|add to cart|buy now|shop now|order now|in den warenkorb|mehr erfahren|weiterlesen|zum "
    "vergrößern klicken|"
    "lire la suite|en savoir plus|cliquez pour agrandir|ajouter au panier|leer más|ver más|añadir al carrito|"
    "haga clic para ampliar|"
    "leggi tutto|scopri di più|saiba mais|lees meer|читать далее|подробнее|"
    "点击放大|查看大图|暂无图片|阅读更多|続きを読む|拡大する|"
    "share on facebook|share on twitter|follow us on instagram|follow us|pin it|tweet this|"
    "all rights reserved|no alt text|no description|no caption|your ad here".split("|")
)
_STRONG = re.compile(
    r"free shipping|free delivery|best (?:price|deal)s?|lowest prices?|low prices?|cheap price|shop now|buy now|"
    r"order (?:now|online)|"
    r"buy (?:\S+ ){0,5}online|buy cheap|cheap (?:\S+ ){1,5}(?:online|for sale)|for sale (?:online|cheap)|"
    r"hot sale|on sale now|"
    r"\d+ ?% off|discount code|coupon|promo code|factory price|wholesale|made in china|fast delivery|money back|"
    r"hd wallpapers?|free download|download free|full hd|near me|online (?:shop|store)|top \d+ best|"
    r"best \S+ (?:of |in )?20\d\d|"
    r"günstig(?:e[nrs]?)?|online kaufen|kaufen|versandkostenfrei|kostenloser versand|jetzt (?:bestellen|kaufen)|"
    r"onlineshop|"
    r"pas cher|livraison gratuite|acheter|en ligne|meilleur prix|promo|barat[oa]s?|envío gratis|comprar|mejor precio|"
    r"spedizione gratuita|acquista|prezzo|offerta|economic[oi]|frete grátis|menor preço|tanio|tanie|"
    r"darmowa dostawa|sklep|"
    r"goedkoop|gratis verzending|kopen|купить|недорого|с доставкой|цена|интернет[- ]магазин|скачать|бесплатно|"
    r"包邮|批发|厂家直销|价格|正品|特价|送料無料|激安|通販|最安値|무료배송|최저가|도매", re.IGNORECASE)  # fmt: skip
_FAINT = re.compile(
    r"\b(?:buy|cheap|sale|discount|online|shop|store|deals?|offers?|price|prices|supplier|manufacturer|quality|"
    r"review|reviews|best|new|20[12]\d|wallpapers?|4k|1080p|usa|uk)\b", re.IGNORECASE)  # fmt: skip
_MARKED = re.compile(r"[<&\[{%$]")
_BROKEN = re.compile(r"[ÃÂâÐÑ][\u0080-\u00bf\u2018-\u2122€ŒœŠšŸŽžƒˆ˜]|ï¿½")
_FILLER = re.compile(r"\blorem ipsum\b|^(?:asdf\w*|qwerty\w*|(\w)\1{2,}|(\w{1,3})\2{3,})$", re.IGNORECASE)


@cache
def _fixed() -> Callable[[str], str] | None:
    try:
        from ftfy import fix_encoding
    except ImportError:
        return None
    repair: Callable[[str], str] = fix_encoding
    return repair


def repaired(text: str) -> str:
    """The first LONGEST characters with entities, tags and template marks resolved, mojibake undone, spaces tidied."""
    text = text[:LONGEST]
    if _BROKEN.search(text) and (fix := _fixed()) is not None:
        text = fix(text)
    if _MARKED.search(text):
        text = _TEMPLATE.sub(" ", _TAG.sub(" ", html.unescape(html.unescape(text))))
    return " ".join(text.split())


def stripped(text: str) -> str:
    """Without what stock sites and search engines put before and after a caption."""
    before = None
    while text != before:
        before = text
        text = _SUFFIX.sub("", text)
    return _PREFIX.sub("", text, count=1).strip(" |-–—:·,")


@lru_cache(maxsize=1 << 14)
def useful_words(text: str) -> int:
    """How many words of two or more letters (or Chinese characters) speak of the picture; 0 for the kinds above."""
    text = repaired(text)
    bare = stripped(_ADDRESS.sub(" ", _EMAIL.sub(" ", text)))
    words = [word.lower() for word in WORD.findall(_HANDLE.sub(" ", bare))]
    if not words or _is_file(text) or _is_left_over(text, bare, words) or _is_credit(bare) or _sells(text, words):
        return 0
    return 0 if len(words) <= 2 and _EMAIL.search(text) else len(words)


def is_code(text: str) -> bool:
    """Whether one word mixes letters with three or more digits, or has digits and separators only."""
    if any(character.isspace() for character in text):
        return False
    digits = sum(character.isdigit() for character in text)
    return digits >= 3 or (digits > 0 and not WORD.search(text))


def script_share(text: str, scripts: Collection[str]) -> float:
    """Share of letters that belong to these scripts (first words of Unicode names, lower case); 1 without letters."""
    letters = [letter for letter in text if letter.isalpha()]
    return sum(_script(letter) in scripts for letter in letters) / len(letters) if letters else 1.0


@lru_cache(maxsize=1 << 14)
def _script(letter: str) -> str:
    name = unicodedata.name(letter, "").split()
    return name[1 if name[:1] == ["FULLWIDTH"] or name[:1] == ["HALFWIDTH"] else 0].lower() if len(name) > 1 else ""


def _is_file(text: str) -> bool:
    if (_IMAGE_FILE.search(text) and len(text.split()) <= 3) or is_code(text) or _PART.match(text):
        return True
    if (named := _CAMERA.match(text)) is None:
        return False
    return all(word.lower() in _BESIDE_NUMBERS for word in WORD.findall(text[named.end() :]))


def _is_left_over(whole: str, text: str, words: list[str]) -> bool:
    if {part.lower().strip(" .…!»›→>:[]()") for part in (whole, text)} & _PAGE or _FILLER.search(text):
        return True
    numbered = any(character.isdigit() for character in text)
    if numbered and all(word in _CALENDAR for word in words):
        return True
    if _HAN.search(text):  # written without spaces: single characters here
        words = [found[0] for found in _HAN_WORDS.finditer("".join(words))]
    known = [word in _NOISE for word in words if word in _NOISE or word in _GLUE]
    return len(known) == len(words) and (numbered or any(known))


def _is_credit(text: str) -> bool:
    if (found := _CREDIT.match(text)) is None:
        return False
    names = [word for word in found["who"].split() if len(word) > 3]
    told = len(found["who"].split()) <= 6 and all(word[0].isupper() or not word[0].isalpha() for word in names)
    by_name = _BY_NAME.match(text)
    return told and bool(by_name or _AGENCY.search(found["who"]))


def _sells(text: str, words: list[str]) -> bool:
    """Two phrases of shops and link farms, or one and two of their words besides."""
    strong = {match.lower() for match in _STRONG.findall(text)}
    if not strong:
        return False
    faint = {match.lower() for match in _FAINT.findall(_STRONG.sub(" ", text))}
    return len(strong) >= 2 or len(faint) >= 2 or (len(faint) == 1 and len(words) <= 6)
