"""Texts whose sentences are known come in; the spans must be exactly these."""

from __future__ import annotations

import time

import pytest

from filbert.text.sentences import sentences

# The sentences are written with | between them; | and the white space beside it stand for the gap in the text.
CASES = [
    # Chinese
    "今天天气很好。|我们去公园吧！|你去吗？",
    "他说：“走吧。”|然后他关上了门。",
    "“快走！”他喊道。|大家跑了。",
    "“再等十分钟……”张奶奶一边搅一边回答。|好。",
    "“怎么少了一只？”|这个问题很难。",
    "“花到哪里，我就到哪里。”他说。|“好。”|我们走了。",
    "他问：“为什么？”，没有人回答。",
    "《你好！李焕英》很好看。|我看了两遍。",
    "我喜欢《怎么办？》这本书。|你呢？",
    "他走了（真的吗？）又回来了。",
    "（他走了。|他又来了。）|门关上了。",
    "真的吗？！|太好了！！！|好。。。",
    "苹果很甜；梨也很甜；都好吃。|走吧。",
    "我想……算了。|不说了……|",
    "他想了想……|“走吧。”",
    "“我不知道……”|她低下头。",
    "“你好！”的意思是打招呼。",
    "我等……等了很久。",
    "他哭了……。|她笑了……！|好",
    "圆周率是3.14。|约等于３．１４。|对。",
    "版本v1.2.3发布了。|请访问https://example.com/a?b=1&c=2。|谢谢。",
    "请写信到a.b@c.com.cn。|好的。",
    "该染料的固色率高.|该方法适合低温染色.",
    "大卫.盖罗：这位是比尔.兰格，我是大卫.盖罗。",
    "1.首先洗手。|2.然后吃饭。",
    "A.苹果。|B.香蕉。",
    "使用MRP建立模型。|效果好。",
    "第一行\n|第二行没有句号\n|第三行。",
    "【通知】明天放假。|请相互转告！",
    "「走吧。」他說。|『好。』",
    "增长了3.5%。|下降了2.1％。|持平",
    '他说："走吧。"|然后走了。',
    '他说。|"走吧。"',  # the quote after the first stop opens one
    "小明(10岁)来了。|小红也来了。",
    "价格：5.5元/斤。|贵吗？|不贵！",
    # English
    "Dr. Smith met Mr. Jones. |They talked.",
    "He lives in the U.S. |He likes it.",
    "The U.S. Army left. |It rained.",
    "It costs $3.14 (approx. half). |Fine.",
    "See e.g. the book, i.e. this one. |Done.",
    "Apples, pears, etc. are cheap. |We sell apples, etc. |Come in.",
    "J. K. Rowling wrote it. |J. R. R. Tolkien did not.",
    "Acme Inc. was founded in 1999. |It grew.",
    "He works at Acme Inc. |The pay is good.",
    "No. 5 is alive. |He said no. |Then he left.",
    "See Fig. 3 and Eq. 2. |Both hold.",
    "On Jan. 5 it snowed. |In Dec. 2020 too.",
    "Version v1.2.3 is out. |Visit www.example.com. |Write to a.b@c.com.",
    "See https://example.com/a?b=1. |OK?",
    "Really?! |Yes! |No way!!",
    "Wait... what? |Wait... |What is it?",
    "I thought… maybe not. |Well… |Let us go.",
    '"Go!" he said. |"Now?" |She left.',
    'He said, "Go." |Then he left.',
    "He said “Go.” |Then he left.",
    "(He left. |She came.) |It rained.",
    "The man (see p. 3. Or not.) left. |Good.",
    "1. First item. |2. Second item.",
    "It is 5 p.m. |They leave now.",
    "At 5 p.m. they left.",
    "He has a Ph.D. in law. |Good.",
    "a movie that works . |it is good . |yes",
    "The score was 3-2. |What a game!",
    "vs. is short for versus. |Smith vs. Jones began.",
    "It's 10 a.m. now. |Wake up!",
    "This is plan B. |We like it.",
    "He asked 'Why?' |Nobody knew.",
    "etc., and so on. |End",
    "Hello world",
    "¿Qué? |Sí. |No.",
    "यह घर है। |वह घर है।",
    # mixed
    "我用了GPT-4。|It works. |很好。",
    "他说OK. |然后走了。",
    "Wi-Fi速度是2.4GHz。|App很好用！",
    "第3.2节讲的是GPS。|See Sec. 4.",
]


@pytest.mark.parametrize("case", CASES)
def test_known_sentences(case: str) -> None:
    parts = case.split("|")
    text = "".join(parts)
    expected = [part.strip() for part in parts if part.strip()]
    assert [text[start:end] for start, end in sentences(text)] == expected


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u3000\t\n"])
def test_blank_text_has_no_sentences(text: str) -> None:
    assert sentences(text) == []


def test_spans_are_offsets_into_the_text_as_given() -> None:
    text = "  今天。 \n\n Hello there.  Bye"
    assert [text[start:end] for start, end in sentences(text)] == ["今天。", "Hello there.", "Bye"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", [".", "。", "(", "（", "“", '"', "a.", "a. ", "...", "《", "'", " ", "A. ", "?a", "...a "]
)
def test_time_is_linear(unit: str) -> None:
    text = unit * (300_000 // len(unit))
    started = time.process_time()
    sentences(text)
    assert time.process_time() - started < 5
