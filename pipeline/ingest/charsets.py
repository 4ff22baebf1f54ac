"""A page's bytes → text, by byte order mark, header, meta element, else UTF-8, else Windows-1252 (WHATWG Encoding)."""

from __future__ import annotations

import codecs
import re

_META = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_HEADER = re.compile(r"""charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
_LOOKED_AT = 4096

_READ_AS = {
    # the standard reads what a label names by the superset that pages really use
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gbk", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs",
    "ks_c_5601-1987": "cp949", "utf-16": "utf-8", "utf-16-le": "utf-8", "utf-16-be": "utf-8",
    "x-sjis": "cp932", "x-gbk": "gb18030", "x-euc-jp": "euc_jp", "unicode-1-1-utf-8": "utf-8", "x-cp1251": "cp1251",
    "x-cp1252": "cp1252", "windows-31j": "cp932", "dos-874": "cp874", "windows-874": "cp874",
}
_KNOWN = frozenset({
    "utf-8", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp866", "cp874",
    "iso8859-2", "iso8859-3", "iso8859-4", "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-10",
    "iso8859-13", "iso8859-14", "iso8859-15", "iso8859-16", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic", "gbk",
    "gb18030", "big5hkscs", "euc_jp", "iso2022_jp", "cp932", "cp949",
})
"""The standard's encodings. Python knows others that a page must not choose, some of them slow without bound."""


def decode(body: bytes, content_type: str) -> str:
    """Never fails: a label that is none is passed over, bytes that fit nowhere become replacement characters."""
    if body.startswith(codecs.BOM_UTF8):
        return body[3:].decode("utf-8", "replace")
    if body[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return body.decode("utf-16", "replace")
    in_header, in_meta = _HEADER.search(content_type), _META.search(body[:_LOOKED_AT])
    for label in (in_header and in_header.group(1), in_meta and in_meta.group(1).decode("ascii", "replace")):
        if label and (encoding := _encoding(label)) is not None:
            return body.decode(encoding, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def _encoding(label: str) -> str | None:
    name = label.strip().lower()
    name = _READ_AS.get(name, name)
    try:
        name = codecs.lookup(name).name
    except LookupError:
        return None
    name = _READ_AS.get(name, name)
    return name if name in _KNOWN else None
