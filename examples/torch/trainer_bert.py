"""Fine-tuning BERT for categories of short texts with the Trainer of Hugging Face over Weft, on CPU tensors.

    python3 examples/bert-categories/make_data.py build/bert-categories
    torchrun --nproc-per-node 2 examples/torch/trainer_bert.py build/bert-categories

The folder has texts.tsv, lines of category, tab, text, and vocab.txt, a WordPiece vocabulary. The model is small and begins
with random numbers, so nothing is downloaded. Needs transformers and accelerate. Both take the group that the program
has made; without one they would make gloo's.
"""
import argparse
import pathlib
import random

import torch
import torch.distributed as dist
from transformers import BertConfig, BertForSequenceClassification, BertTokenizer, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    """Tokens and category of each line: a dictionary of input_ids [32], attention_mask [32] and labels []."""

    def __init__(self, lines, categories, tokenizer):
        self.tokens = tokenizer([text for _, text in lines], truncation=True, padding="max_length", max_length=32,
                                return_tensors="pt")
        self.labels = torch.tensor([categories.index(category) for category, _ in lines])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.tokens["input_ids"][index], "attention_mask": self.tokens["attention_mask"][index],
                "labels": self.labels[index]}


def accuracy(predicted):
    return {"accuracy": float((predicted.predictions.argmax(-1) == predicted.label_ids).mean())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path, help="with texts.tsv and vocab.txt")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    dist.init_process_group("weft")

    lines = [line.split("\t") for line in (arguments.folder / "texts.tsv").read_text().splitlines()]
    random.Random(1).shuffle(lines)
    categories = sorted({category for category, _ in lines})
    tokenizer = BertTokenizer(str(arguments.folder / "vocab.txt"))
    held_out = len(lines) // 10
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256,
        max_position_embeddings=32, num_labels=len(categories)))
    training = TrainingArguments(
        output_dir=str(arguments.folder / "trainer"), use_cpu=True, max_steps=arguments.steps, learning_rate=1e-3,
        warmup_steps=arguments.steps // 10, average_tokens_across_devices=False, per_device_train_batch_size=16,
        per_device_eval_batch_size=64, logging_steps=max(1, arguments.steps // 4), save_strategy="no", report_to=[],
        disable_tqdm=True)
    trainer = Trainer(model=model, args=training, compute_metrics=accuracy,
                      train_dataset=Texts(lines[held_out:], categories, tokenizer),
                      eval_dataset=Texts(lines[:held_out], categories, tokenizer))
    trainer.train()
    scores = trainer.evaluate()
    if dist.get_rank() == 0:
        for entry in trainer.state.log_history:
            if "loss" in entry:
                print(f"step {entry['step']}: loss {entry['loss']:.4f}")
        print(f"accuracy {scores['eval_accuracy']:.3f} of {held_out} held-out texts in {len(categories)} categories")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
