"""Teach a small language model to answer in conversations, with LoRA, and ask it.

    python examples/chat_lora.py

First the base: a decoder that reads sentences ("Oslo is the capital of Norway."), all weights trained. Then conversations about three
quarters of the capitals: a chat template writes them as tokens, `pack` puts several into each row, only the answers are learned, and only
adapters train. What to answer about the other capitals is known from the sentences alone. The adapters are saved, read back, and merged
into the weights that generate.
"""

import argparse
import time
from tempfile import TemporaryDirectory
from typing import Any

import attrs

import mlxfp as fp

fp.runtime.use_fast_blas()  # before MLX is imported: on Linux without a GPU, matrix products are 20 times faster

COUNTRIES = (
    "Oslo Norway Lisbon Portugal Madrid Spain Paris France Rome Italy Athens Greece Vienna Austria Warsaw Poland Prague Czechia Dublin "
    "Ireland Berlin Germany Helsinki Finland Stockholm Sweden Copenhagen Denmark Cairo Egypt Nairobi Kenya Accra Ghana Dakar Senegal Tokyo "
    "Japan Hanoi Vietnam Delhi India Lima Peru Quito Ecuador Havana Cuba"
)
LENGTH = 64
TEMPLATE = fp.ChatTemplate(
    "{% for message in messages %}[CLS]{{ message.role }}: {{ message.content }}[SEP]{% endfor %}"
    "{% if add_generation_prompt %}[CLS]assistant: {% endif %}"
)


def main() -> None:
    """Train the base and the adapters, and ask about capitals that no conversation was about."""
    options = _options()
    words = COUNTRIES.split()
    countries = dict(zip(words[::2], words[1::2], strict=True))
    asked = dict(list(countries.items())[::4])
    chats = [{"messages": _conversation(*pair)} for pair in countries.items() if pair[0] not in asked]
    sentences = fp.from_examples([{"text": f"{capital} is the capital of {country}."} for capital, country in countries.items()])
    said = fp.from_examples([{"text": " ".join(message["content"] for message in row["messages"])} for row in chats])
    tokenizer = fp.train_tokenizer(fp.concat([sentences, said]), kind="wordpiece", vocab_size=500)
    tokenizer = attrs.evolve(tokenizer, chat_template=TEMPLATE)

    config = fp.models.configure("decoder", size="tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=LENGTH)
    base = fp.models.CausalLM(fp.models.Decoder(config, seed=options.seed), seed=options.seed)
    ids = fp.pipe(sentences, fp.tokenize(tokenizer), fp.load())
    _train(base, ids, tokenizer, options)
    print(f"the base answers {_count_right(base, tokenizer, asked)} of {len(asked)} questions")

    tokens = fp.pipe(fp.from_examples(chats), fp.chat(tokenizer), fp.load())
    adapted = fp.models.lora(base, rank=8, scale=20.0, seed=options.seed)
    _train(adapted, tokens, tokenizer, options, prompt="prompt")
    with TemporaryDirectory() as folder:
        fp.models.save_adapters(folder, adapted)
        merged = fp.models.merge_adapters(fp.models.load_adapters(folder, base))
    others = {capital: country for capital, country in countries.items() if capital not in asked}
    print(f"with adapters it answers {_count_right(merged, tokenizer, others)} of {len(others)} about which it has seen a conversation,")
    print(f"and {_count_right(merged, tokenizer, asked)} of the {len(asked)} others")
    capital = next(iter(others))
    print(f"user: {_conversation(capital, '')[0]['content']}\nassistant: {_answers(merged, tokenizer, [capital])[0]}")


def _train(model: Any, rows: fp.Dataset[Any], tokenizer: fp.Tokenizer, options: argparse.Namespace, *, prompt: str | None = None) -> None:
    """Train what is trainable in a model on packed rows, and put the result into it."""
    seed, steps = options.seed, options.steps
    packed = fp.pack(LENGTH + 1, aligned=[] if prompt is None else [prompt])
    collator = fp.collators.causal(pad_id=tokenizer.pad_id, prompt_mask=prompt, packed=True, length=LENGTH)
    batches = fp.pipe(rows, fp.repeat(None), fp.shuffle(seed=seed, buffer=200), packed, fp.batch(2), fp.collate(collator))
    optimizer = fp.optimizers.adamw(fp.schedules.cosine_decay(3e-3, steps=steps, warmup=max(1, steps // 10)))
    step, start = fp.train_step(model, fp.losses.causal_lm, optimizer, clip_norm=1.0), fp.train_state(model, optimizer, seed=seed)
    began = time.process_time()
    end = fp.last(fp.pipe(fp.fit(step, start, batches, steps=steps, log_every=50), fp.observers.progress()))
    print(f"{steps} steps in {time.process_time() - began:.0f} s of processor time")
    model.update(end.state.params)
    model.eval()  # turns dropout off


def _answers(model: Any, tokenizer: fp.Tokenizer, capitals: list[str]) -> list[str]:
    """Ask for the country of each capital."""
    questions = [fp.encode_chat(tokenizer, _conversation(capital, "")[:1]) for capital in capitals]
    return [tokenizer.decode(new) for new in fp.models.generate(model, questions, max_tokens=8, stop_ids=[tokenizer.sep_id])]


def _count_right(model: Any, tokenizer: fp.Tokenizer, countries: dict[str, str]) -> int:
    expected = [tokenizer.decode(tokenizer.encode(_conversation(*pair)[1]["content"])) for pair in countries.items()]
    return sum(found == right for found, right in zip(_answers(model, tokenizer, list(countries)), expected, strict=True))


def _conversation(capital: str, country: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Where is {capital}?"}, {"role": "assistant", "content": f"{capital} is in {country}."}]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the order (default 0)")
    parser.add_argument("--steps", type=int, default=600, help="updates of the base; and as many of the adapters (default 600)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
