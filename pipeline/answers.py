"""What a captioner answered, judged: the caption in it, or why there is none. The same rules for every captioner.

Wrappings are taken off: "Here is a caption:", quotes, fences, chat marks, offers of further help. Four kinds of answer
are no captions: loops (a decoder that says the same words over and over), refusals, echoes of the prompt, and
non-answers ("unknown"). Words are looked at, never the picture.
"""

from __future__ import annotations

import json
import re
from difflib import SequenceMatcher

VERSION = 1
"""Rises when another caption, or none, would be found in the same answer."""
LONGEST = 8192
"""Characters of an answer that are looked at and kept."""
NOT_USED = ("empty", "loop", "refusal", "echo", "non_answer")

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|$)", re.DOTALL | re.IGNORECASE)
_MARKS = re.compile(r"<\|[\w ]{1,40}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_(?:text|turn)>|<(?:pad|unk|eos|bos)>")
_TURN = re.compile(r"^.*\b(?:ASSISTANT|Assistant|assistant)\s*:\s*", re.DOTALL)
_FENCE = re.compile(r"^```[\w-]*\s*\n?(.*?)\n?\s*```$", re.DOTALL)
_LABEL = re.compile(
    r"^[*_#\s]*(?:(?:image|picture|photo|short|long|brief|detailed|one-sentence|suggested|final)\s+)?"
    r"(?:caption|description|alt[ -]text|answer|output|response|keywords|tags|title|"
    r"beschreibung|bildunterschrift|légende|descripción|descrizione)[*_\s]*[:：][*_\s]*", re.IGNORECASE)
_OPENING = re.compile(
    r"^(?:(?:sure|certainly|of course|absolutely|okay|ok|great|yes)(?: thing)?[,.!:]+\s*)?"
    r"(?:here(?:'s|’s| is| are| you go)|below is|(?:a|the|one|my) (?:\w+ ){0,2}(?:caption|description)"
    r"(?: (?:for|of) (?:this|the) (?:image|picture|photo))? (?:is|would be|could be|might be)|"
    r"hier ist|voici|aquí (?:está|tienes)|ecco)\b[^:\n\"“]{0,90}[:：]\s*", re.IGNORECASE)
_AGREED = re.compile(
    r"^(?:sure|certainly|of course|absolutely|okay)(?: thing)?"
    r"(?:!\s*|[,.:]\s*(?:i can (?:help|do)[^.!\n]*[.!]\s*)?\n+)", re.IGNORECASE)
_AFTERWARDS = re.compile(
    r"\n\s*(?:let me know|i hope|hope this|feel free|would you like|if you(?:'d| would| need| want)|please let me|"
    r"is there anything|note:|\(?word count)[^\n]*(?:\n.*)?$", re.IGNORECASE | re.DOTALL)
_COUNTED = re.compile(r"\s*[(\[]\d+ (?:words|characters|tokens)[)\]]\s*$", re.IGNORECASE)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "„": "“", "「": "」", "『": "』", "`": "`"}

_I_AM = r"(?:i['’]?m|i am|we are|we['’]re)"
_CANNOT = (r"(?:can(?:no|')?t|can’t|can not|could(?: not|n't|n’t)|won['’]?t|will not|am (?:not able|unable) to|"
           r"must decline)")
_PICTURE = r"\b(?:image|picture|photo)\b"
_REFUSAL = re.compile("|".join((
    rf"^{_I_AM} (?:very |really |so |truly )?(?:sorry|afraid)\b",
    rf"^{_I_AM} (?:currently )?(?:unable|not able|not allowed|not comfortable|just an ai|an ai)\b",
    r"^(?:my )?(?:sorry|apologies|unfortunately|regrettably)[,.!]? (?:but )?"
    r"(?:i\b|i['’]|we (?:can|are (?:not|un))|as an|this (?:image|request)|"
    r"the image (?:is not|isn't|cannot|can't|did not|could not)|there is no image|no image)",
    r"^i (?:do )?apologi[sz]e\b",
    r"^as an? (?:ai|a\.i\.|artificial|(?:\w+[ -]){0,2}"
    r"(?:language model|ai (?:model|assistant|system)|assistant,? i))\b",
    rf"^i {_CANNOT}\b.{{0,40}}?\b(?:help|assist|describe|see|view|identify|provide|process|access|create|generate|"
    r"comply|fulfil|analy[sz]e|determine|recogni[sz]e|continue|answer|tell|engage|discuss|caption|write|open|display|"
    r"interpret|do (?:that|this))",
    rf"^i (?:do not|don['’]t) (?:see|have|feel)\b.{{0,50}}(?:{_PICTURE}|\b(?:ability|access|comfortable|attach))",
    rf"^(?:no|there (?:is|was) no) {_PICTURE}.{{0,40}}\b"
    r"(?:provided|attached|uploaded|shared|given|included|visible|found)",
    rf"^(?:please|could you(?: please)?|you need to) (?:re-?)?(?:provide|upload|share|attach|send)\b"
    rf".{{0,40}}{_PICTURE}",
    rf"^it (?:seems|looks|appears)(?: like| that| as if)?.{{0,30}}{_PICTURE}.{{0,50}}"
    r"(?:\bnot\b|n't\b|missing|failed|blank|without|forgot)",
    r"^this (?:request|content|image|picture) (?:violates|goes against|cannot be|can't be|may violate)",
    r"^(?:es )?tut mir leid\b", r"^leider kann ich\b", r"^als (?:eine? )?(?:ki|künstliche|sprachmodell)\b",
    r"^ich kann .{0,60}\bnicht\b.{0,30}(?:beschreiben|helfen|sehen|erkennen|anzeigen)",
    r"^(?:je suis )?(?:vraiment )?désolée?\b", r"^je ne (?:peux|suis|vois|parviens)\b",
    r"^en tant qu['’e] ?(?:ia|intel|assist|mod)",
    r"^(?:lo siento|lo lamento|disculpa|no puedo)\b", r"^como (?:una? )?(?:ia|inteligencia artificial|modelo de)\b",
    r"^(?:mi dispiace|non posso|non riesco)\b", r"^(?:desculpe|sinto muito|lamento|não posso|não consigo)\b",
    r"^(?:het spijt me|przykro mi|przepraszam)\b",
    r"^(?:извините|простите|к сожалению, я|я не могу|как (?:ии|языковая модель|искусственный))",
    r"^(?:很|非常)?抱歉", r"^(?:对不起|對不起|我无法|我無法|我不能)",
    r"^(?:作为|作為)(?:一个|一個)?(?:ai|人工智能|语言模型|語言模型)",
    r"^(?:大変)?申し訳", r"^(?:すみません|ごめんなさい)", r"^(?:죄송|미안)", r"^(?:آسف|عذر)",
)), re.IGNORECASE)  # fmt: skip
_NON_ANSWER = re.compile(
    r"^(?:unanswerable|unknown|n/?a|none|null|nil|yes|no|not sure|unsure|undefined|"
    r"caption|description|image|picture|photo|"
    r"(?:no|not) (?:caption|description|answer|text|information|data|applicable|available)(?: (?:available|given|found|"
    r"provided))?|<?\[?(?:image|img|caption|description|insert caption(?: here)?|your caption(?: here)?)\]?>?|"
    r"i (?:do not|don['’]t) know\b.*|i(?:['’]m| am) not (?:sure|certain)\b.*|"
    r"unable to (?:determine|describe|process)\b.*|"
    r"error\b[:!]?.*|\{.*\"(?:error|detail)\".*\}|ok(?:ay)?|sure|done|hello[!,]?.{0,60})[.!?]*$", re.IGNORECASE)
_INSTRUCTION = re.compile(
    r"^(?:please )?(?:describe|caption|write|generate|create|provide|give)\b(?: me)?(?: (?:an?|the|this|one|short|long|"
    r"brief|detailed|accurate|concise|descriptive)){0,4} (?:image|picture|photo|caption|description|alt text)\b",
    re.IGNORECASE)
_TOKENS = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_CHARS = re.compile(r"([^\W\d_]{1,12}?)\1{7,}|([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af，、。 ]{2,12}?)\2{3,}")


def caption_in(answer: str, prompt: str = "") -> tuple[str, str]:
    """The caption in an answer, with tidy spaces, and "" ; or "" and why there is none: one of NOT_USED."""
    text = _bare(answer[:LONGEST], prompt)
    words = [word.casefold() for word in _TOKENS.findall(text)]
    if not words:
        return "", "echo" if prompt and prompt.strip().casefold() in answer.casefold() else "empty"
    if _REFUSAL.search(text):
        return "", "refusal"
    if _NON_ANSWER.search(text):
        return "", "non_answer"
    if _INSTRUCTION.search(text) or _echoes(words, prompt):
        return "", "echo"
    if loops(words) or _CHARS.search(text):
        return "", "loop"
    return " ".join(text.split()), ""


def loops(words: list[str]) -> bool:
    """A word four times in a row, a phrase of 2 to 12 words three times, or mostly phrases said before."""
    for size in range(1, 13):
        times = 4 if size == 1 else 3
        run = 0
        for at in range(size, len(words)):
            run = run + 1 if words[at] == words[at - size] else 0
            if run >= size * (times - 1):
                return True
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return len(words) >= 16 and len(set(triples)) < len(triples) / 2


def _bare(answer: str, prompt: str) -> str:
    """Without wrappings, whatever their order."""
    text = _MARKS.sub(" ", _THOUGHTS.sub("", answer)).strip()
    for _ in range(6):
        before = text
        text = _without_prompt(_TURN.sub("", text), prompt)
        if fenced := _FENCE.match(text):
            text = fenced[1]
        text = _from_json(text)
        text = _COUNTED.sub("", _AFTERWARDS.sub("", text)).strip()
        if (agreed := _AGREED.match(text)) and len(_TOKENS.findall(text[agreed.end() :])) >= 2:
            text = text[agreed.end() :]
        text = _unquoted(_LABEL.sub("", _OPENING.sub("", text, 1), 1).strip())
        if text == before:
            break
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and all(_BULLET.match(line) for line in lines):
        text = ", ".join(_BULLET.sub("", line).strip().rstrip(",") for line in lines)
    return text.strip()


def _unquoted(text: str) -> str:
    for mark in ("**", "__", "*"):
        inside = text[len(mark) : -len(mark)]
        if text.startswith(mark) and text.endswith(mark) and len(text) > 2 * len(mark) and mark not in inside:
            text = inside.strip()
    last = _QUOTES.get(text[:1])
    if last and len(text) > 1 and text.endswith(last) and not {text[0], last} & set(text[1:-1]) - {"'", "’"}:
        return text[1:-1].strip()
    return text


def _from_json(text: str) -> str:
    if not (text.startswith("{") and text.endswith("}")):
        return text
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return text
    named = [values[name] for name in ("caption", "description", "text", "answer") if isinstance(values.get(name), str)]
    return str(named[0]) if named else text


def _without_prompt(text: str, prompt: str) -> str:
    """A decoder that repeats the prompt and then goes on; "a photo of" may be a caption's own beginning."""
    asked = prompt.strip()
    rest = text[len(asked) :]
    if not asked or not text.casefold().startswith(asked.casefold()):
        return text
    return rest.lstrip(" \n:") if not asked[-1].isalnum() or rest[:1] in ("", "\n", ":") else text


def _echoes(words: list[str], prompt: str) -> bool:
    asked = [word.casefold() for word in _TOKENS.findall(prompt)]
    if len(words) < 4 or len(asked) < 4:
        return False
    if f" {' '.join(words)} " in f" {' '.join(asked)} ":
        return True
    return SequenceMatcher(None, words[: 2 * len(asked)], asked, autojunk=False).ratio() >= 0.85
