"""Answers of captioners, judged by hand: what is the caption in each, or why there is none."""

from __future__ import annotations

import pytest

from pipeline.answers import NOT_USED, caption_in, loops

ASKED = "Describe this picture in one plain sentence. Say what is to be seen and nothing else."

TAKEN = [
    # answer → caption
    ("A brown dog asleep on a rug.", "A brown dog asleep on a rug."),
    ("  two   boats\n at anchor ", "two boats at anchor"),
    ("Here is a caption: A brown dog asleep on a rug.", "A brown dog asleep on a rug."),
    ("Here's a caption for the image:\n\n\"Two boats at anchor.\"", "Two boats at anchor."),
    ("Here’s one possible description: **Two boats at anchor.**", "Two boats at anchor."),
    ("Sure! Here is a short description of the picture:\nTwo boats at anchor.", "Two boats at anchor."),
    ("Certainly, here is the caption you asked for: Two boats at anchor.", "Two boats at anchor."),
    ("Of course! Two boats at anchor in a harbour.", "Two boats at anchor in a harbour."),
    ("Caption: Two boats at anchor.", "Two boats at anchor."),
    ("**Caption:** Two boats at anchor.", "Two boats at anchor."),
    ("## Description: Two boats at anchor.", "Two boats at anchor."),
    ("Image description: two boats at anchor", "two boats at anchor"),
    ("Alt text: two boats at anchor", "two boats at anchor"),
    ("The caption for this image is: two boats at anchor", "two boats at anchor"),
    ("A suitable caption would be: \"Two boats at anchor\"", "Two boats at anchor"),
    ("Hier ist eine Beschreibung: Zwei Boote vor Anker.", "Zwei Boote vor Anker."),
    ("Voici une légende pour cette image : Deux bateaux au mouillage.", "Deux bateaux au mouillage."),
    ("Aquí tienes una descripción: Dos barcos fondeados.", "Dos barcos fondeados."),
    ("“Two boats at anchor.”", "Two boats at anchor."),
    ("'Two boats at anchor'", "Two boats at anchor"),
    ("「二隻のボート」", "二隻のボート"),
    ("«Два корабля на якоре»", "Два корабля на якоре"),
    ("```\nTwo boats at anchor.\n```", "Two boats at anchor."),
    ("```text\nTwo boats at anchor.\n```", "Two boats at anchor."),
    ("```json\n{\"caption\": \"Two boats at anchor.\"}\n```", "Two boats at anchor."),
    ("{\"description\": \"Two boats\", \"score\": 3}", "Two boats"),
    ("- boat\n- harbour\n- evening", "boat, harbour, evening"),
    ("1. boat\n2. harbour\n3. evening", "boat, harbour, evening"),
    ("Tags: boat, harbour, evening", "boat, harbour, evening"),
    ("Two boats at anchor.\n\nLet me know if you need another version!", "Two boats at anchor."),
    ("Two boats at anchor.\n\nI hope this helps.", "Two boats at anchor."),
    ("Two boats at anchor. (4 words)", "Two boats at anchor."),
    ("<think>The user wants one sentence.</think>\nTwo boats at anchor.", "Two boats at anchor."),
    ("Two boats at anchor.<|im_end|>", "Two boats at anchor."),
    ("<s> two boats at anchor </s>", "two boats at anchor"),
    (f"USER: {ASKED} ASSISTANT: Two boats at anchor.", "Two boats at anchor."),
    (f"{ASKED}\nTwo boats at anchor.", "Two boats at anchor."),
    # captions that only look like one of the others
    ("Sorry board game box on a wooden table", "Sorry board game box on a wooden table"),
    ("\"Sorry, we're closed\" sign on a shop door", "\"Sorry, we're closed\" sign on a shop door"),
    ("Sorry, we're closed sign on a door", "Sorry, we're closed sign on a door"),
    ("A man says sorry to a woman on a bench", "A man says sorry to a woman on a bench"),
    ("Unfortunately named shop front", "Unfortunately named shop front"),
    ("A robot that cannot climb the stairs", "A robot that cannot climb the stairs"),
    ("I can has cheezburger cat meme", "I can has cheezburger cat meme"),
    ("a very, very, very large pumpkin", "a very, very, very large pumpkin"),
    ("rows upon rows upon rows of empty seats", "rows upon rows upon rows of empty seats"),
    ("red car, red wheel, red door, red roof", "red car, red wheel, red door, red roof"),
    ("No parking sign beside a gate", "No parking sign beside a gate"),
    ("No picture frame is hung straight in this room", "No picture frame is hung straight in this room"),
    ("unknown soldier's tomb with an eternal flame", "unknown soldier's tomb with an eternal flame"),
    ("An error message on a cash machine", "An error message on a cash machine"),
    ("A description board beside a ruin", "A description board beside a ruin"),
    ("A sign that reads \"Caption: none\"", "A sign that reads \"Caption: none\""),
    ("As a storm nears, an old barn stands alone", "As a storm nears, an old barn stands alone"),
    ("As an assistant holds the lamp, a surgeon operates", "As an assistant holds the lamp, a surgeon operates"),
    ("Please keep off the grass sign", "Please keep off the grass sign"),
    ("It appears to be a picture of a fox in snow", "It appears to be a picture of a fox in snow"),
    ("Nothing but sand as far as the eye can see", "Nothing but sand as far as the eye can see"),
    ("ein Hund, der auf einem Teppich schläft", "ein Hund, der auf einem Teppich schläft"),
    ("草原上的两匹马", "草原上的两匹马"),
    ("Image of Mary above an altar", "Image of Mary above an altar"),
    ("Here lies an old dog: a gravestone", "Here lies an old dog: a gravestone"),
    ("dog", "dog"),
]  # fmt: skip
REFUSED = [
    ("", "empty"), (" \n", "empty"), ("...", "empty"), ("\"\"", "empty"), ("```\n```", "empty"),
    ("Caption:", "empty"), ("<think>I look at it and", "empty"),
    ("a red a red a red a red", "loop"), ("red red red red red", "loop"),
    ("a man in a hat and a man in a hat and a man in a hat and a man", "loop"),
    ("cat, cat, cat, cat, cat", "loop"),
    ("a circle on the a circle on the a circle on the", "loop"),
    ("The dog is brown. The dog is brown. The dog is brown.", "loop"),
    ("a photo of hahahahahahahahahahahahaha", "loop"),
    ("红色的花红色的花红色的花红色的花红色的花", "loop"),
    ("blue sky white cloud blue sky green tree blue sky white cloud blue sky green tree blue sky white cloud blue sky",
     "loop"),
    ("I'm sorry, but I can't help with that.", "refusal"), ("I’m sorry, I can’t assist with this image.", "refusal"),
    ("I am sorry, I cannot identify people.", "refusal"), ("Sorry, I can't see the image.", "refusal"),
    ("I cannot describe this picture.", "refusal"), ("I can't view images.", "refusal"),
    ("I'm unable to view the image directly.", "refusal"), ("I apologize, but I cannot provide that.", "refusal"),
    ("As an assistant, I cannot see it.", "refusal"),
    ("As an AI language model, I do not see pictures.", "refusal"), ("As an AI, I can't do that.", "refusal"),
    ("Unfortunately, I cannot process this file.", "refusal"), ("I don't see any image attached.", "refusal"),
    ("I don't have the ability to see images.", "refusal"), ("No image was provided.", "refusal"),
    ("There is no image attached to your message.", "refusal"), ("Please upload the image again.", "refusal"),
    ("It seems that the image did not load, it is not there.", "refusal"), ("I won't describe that.", "refusal"),
    ("This image violates the content policy.", "refusal"),
    ("Caption: I'm sorry, I can't help with that.", "refusal"),
    ("Es tut mir leid, das kann ich nicht.", "refusal"), ("Leider kann ich das Bild nicht sehen.", "refusal"),
    ("Je suis désolé, je ne peux pas.", "refusal"), ("Lo siento, no puedo ayudar con eso.", "refusal"),
    ("Mi dispiace, non posso.", "refusal"), ("Desculpe, não posso ajudar.", "refusal"),
    ("Извините, я не могу помочь.", "refusal"), ("抱歉，我无法描述这张图片。", "refusal"),
    ("申し訳ありませんが、お手伝いできません。", "refusal"), ("죄송하지만 도와드릴 수 없습니다.", "refusal"),
    (ASKED, "echo"), (f"\"{ASKED}\"", "echo"), (ASKED.upper(), "echo"), (f"USER: {ASKED}", "echo"),
    ("Describe this picture in one plain sentence.", "echo"), ("Say what is to be seen and nothing else", "echo"),
    ("Write a short caption for the image.", "echo"),
    ("unanswerable", "non_answer"), ("Unknown.", "non_answer"), ("N/A", "non_answer"), ("yes", "non_answer"),
    ("No description available.", "non_answer"), ("I don't know what this is.", "non_answer"), ("image", "non_answer"),
    ("[insert caption here]", "non_answer"), ("<image>", "non_answer"), ("{\"error\": \"no picture\"}", "non_answer"),
    ("Hello! How can I help you today?", "non_answer"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "caption"), TAKEN)
def test_captions_are_taken_out_of_their_wrappings(answer: str, caption: str) -> None:
    assert caption_in(answer, ASKED) == (caption, "")
    assert caption_in(caption, ASKED) == (caption, "")  # a second look changes nothing


@pytest.mark.parametrize(("answer", "reason"), REFUSED)
def test_other_answers_are_not_used(answer: str, reason: str) -> None:
    assert caption_in(answer, ASKED) == ("", reason)


def test_every_reason_is_in_the_table() -> None:
    assert {reason for _, reason in REFUSED} == set(NOT_USED)


def test_a_prompt_may_be_the_beginning_of_a_caption() -> None:
    assert caption_in("a photo of a dog", "a photo of") == ("a photo of a dog", "")
    assert caption_in("a photo of", "a photo of") == ("", "echo")
    assert caption_in("Question: what? Answer: a dog", "Question: what? Answer:") == ("a dog", "")


@pytest.mark.parametrize("length", range(1, 13))
def test_loops_of_any_length(length: int) -> None:
    phrase = [f"w{number}" for number in range(length)]
    once_more = 4 if length == 1 else 3
    assert loops(["so", *phrase * once_more, "end"])
    assert not loops(["so", *phrase * (once_more - 1), "end"])


def test_long_answers_are_judged_quickly_enough_to_finish() -> None:
    assert caption_in("ab" * 50_000)[1] == "loop"
    assert caption_in(" ".join(f"word{number}" for number in range(700)))[1] == ""
    assert caption_in("a dog\n" + " \n" * 50_000 + "end")[0] == "a dog"
    assert caption_in("{" * 20_000 + "}")[1] in NOT_USED
