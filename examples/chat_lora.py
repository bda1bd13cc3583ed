"""Teach a small language model to answer in conversations, with LoRA.

    python examples/chat_lora.py

1. A decoder learns from sentences such as "Oslo is the capital of Norway.", with all weights trained.
2. LoRA adapters learn from conversations about three quarters of the capitals. A chat template writes conversations as tokens, `pack` puts
   several conversations into a row, and only the answers count in the loss.
3. The adapters are saved, loaded, and merged into the weights.
4. The model answers questions about the other capitals, known only from the sentences.
"""

import argparse
import time
from tempfile import TemporaryDirectory
from typing import Any

import attrs

import mlxfp as fp

fp.runtime.use_fast_blas()  # before the import of MLX: matrix products on Linux without a GPU become 20 times faster

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
    """Train the base model and the adapters, and ask about capitals missing from the conversations."""
    options = _options()
    words = COUNTRIES.split()
    countries: dict[str, str] = dict(zip(words[::2], words[1::2], strict=True))
    unseen = dict(list(countries.items())[::4])
    chats = [{"messages": _conversation(*pair)} for pair in countries.items() if pair[0] not in unseen]
    sentences = fp.from_examples([{"text": f"{capital} is the capital of {country}."} for capital, country in countries.items()])
    spoken = fp.from_examples([{"text": " ".join(message["content"] for message in row["messages"])} for row in chats])
    tokenizer = fp.train_tokenizer(fp.concat([sentences, spoken]), kind="wordpiece", vocab_size=500)
    tokenizer = attrs.evolve(tokenizer, chat_template=TEMPLATE)

    config = fp.models.configure("decoder", size="tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=LENGTH)
    base = fp.models.CausalLM(fp.models.Decoder(config, seed=options.seed), seed=options.seed)
    ids = fp.pipe(sentences, fp.tokenize(tokenizer), fp.load())
    _train(base, ids, tokenizer, options)
    print(f"without adapters, the model answers {_count_right(base, tokenizer, unseen)} of {len(unseen)} questions")

    tokens = fp.pipe(fp.from_examples(chats), fp.chat(tokenizer), fp.load())
    adapted = fp.models.lora(base, rank=8, scale=20.0, seed=options.seed)
    _train(adapted, tokens, tokenizer, options, prompt="prompt")
    with TemporaryDirectory() as folder:
        fp.models.save_adapters(folder, adapted)
        merged = fp.models.merge_adapters(fp.models.load_adapters(folder, base))
    seen = {capital: country for capital, country in countries.items() if capital not in unseen}
    print(f"with adapters, the model answers {_count_right(merged, tokenizer, seen)} of {len(seen)} questions with a training conversation")
    print(f"and {_count_right(merged, tokenizer, unseen)} of {len(unseen)} other questions")
    capital = next(iter(seen))
    print(f"user: {_conversation(capital, '')[0]['content']}\nassistant: {_answers(merged, tokenizer, [capital])[0]}")


def _train(model: Any, rows: fp.Dataset[Any], tokenizer: fp.Tokenizer, options: argparse.Namespace, *, prompt: str | None = None) -> None:
    """Train the trainable weights of a model on packed rows, in place."""
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
    """Ask the model for the country of each capital."""
    questions = [fp.encode_chat(tokenizer, _conversation(capital, "")[:1]) for capital in capitals]
    return [tokenizer.decode(new) for new in fp.models.generate(model, questions, max_tokens=8, stop_ids=[tokenizer.sep_id])]


def _count_right(model: Any, tokenizer: fp.Tokenizer, countries: dict[str, str]) -> int:
    expected = [tokenizer.decode(tokenizer.encode(_conversation(*pair)[1]["content"])) for pair in countries.items()]
    return sum(answer == right for answer, right in zip(_answers(model, tokenizer, list(countries)), expected, strict=True))


def _conversation(capital: str, country: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Where is {capital}?"}, {"role": "assistant", "content": f"{capital} is in {country}."}]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights and the order (default 0)")
    parser.add_argument("--steps", type=int, default=600, help="training steps of the base model, and of the adapters (default 600)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
