#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_tokens.py PREFIX: real text as tokens, for train_gpt: what Debian's documentation packages say.

Fetches packages by apt-get (nothing is installed), takes the text of their HTML, RST, POD, Markdown and plain files, trains a
byte-level BPE on it (tokenizers from PyPI; no vocabulary is downloaded), and writes each file as a document:

    PREFIX.bin, PREFIX.idx      Megatron's format, 16-bit tokens; each document ends with token 0
    PREFIX.llm_c.bin            with --llm-c: llm.c's format; each document begins with token 0
    PREFIX.tokenizer.json       for tokenizers.Tokenizer.from_file

A file whose text was there already is left out. Needs a Debian with apt-get and dpkg-deb, and tokenizers.
"""

import argparse
import gzip
import hashlib
import html.parser
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

PACKAGES = ["debian-faq", "debian-policy", "debian-reference-en", "developers-reference", "git-doc", "linux-doc-6.1",
            "perl-doc", "postgresql-doc-15", "python3.11-doc", "sqlite3-doc"]  # fmt: skip
SUFFIXES = {".html", ".md", ".pod", ".rst", ".txt"}
END = "<|endoftext|>"
SHORTEST = 200  # characters
LLM_C_MAGIC, LLM_C_HEADER = 20240520, 256


class Text(html.parser.HTMLParser):
    """The text of an HTML page, without what is no text."""

    def __init__(self, page):
        super().__init__()
        self.parts, self.hidden = [], 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style") and self.hidden > 0

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def text_of(path):
    """The text of a file; nothing where it is none, or the source of a page. Empty lines are left out."""
    names = path.name.removesuffix(".gz")
    if pathlib.Path(names).suffix not in SUFFIXES or "_sources" in path.parts:
        return ""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8", "replace")
    if names.endswith(".html"):
        text = "".join(Text(text).parts)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def fetch(packages, folder):
    """The .deb files of the packages. What is in the folder is not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in packages if not list(folder.glob(f"{name}_*.deb"))]
    if missing:
        print(f"fetching {', '.join(missing)}", file=sys.stderr)
        done = subprocess.run(["apt-get", "download", *missing], cwd=folder, text=True, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)  # fmt: skip
        if done.returncode != 0:
            sys.exit(f"make_tokens.py: apt-get download failed; --packages names others\n{done.stderr.strip()}")
    return [max(folder.glob(f"{name}_*.deb")) for name in packages]


def documents_of(debs):
    """Each text once, in an order that is always the same."""
    seen = set()
    for deb in debs:
        before, characters = len(seen), 0
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["dpkg-deb", "--extract", deb, folder], check=True)
            for path in sorted(pathlib.Path(folder).rglob("*")):
                text = text_of(path) if path.is_file() and not path.is_symlink() else ""
                digest = hashlib.sha256(text.encode()).digest()
                if len(text) >= SHORTEST and digest not in seen:
                    seen.add(digest)
                    characters += len(text)
                    yield text
        print(f"{deb.name}: {len(seen) - before} documents, {characters / 1e6:.1f} M characters", file=sys.stderr)


def write(path, *parts):
    """The file is there as a whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        for part in parts:
            file.write(part)
    os.replace(partial, path)


def write_megatron(prefix, documents):
    """One sequence a document, the end-of-text token behind it."""
    lengths = [len(tokens) + 1 for tokens in documents]
    begins = [0]
    for length in lengths:
        begins.append(begins[-1] + 2 * length)
    count, uint16 = len(lengths), 8
    write(prefix.with_name(prefix.name + ".bin"), *(struct.pack(f"<{len(d) + 1}H", *d, 0) for d in documents))
    write(prefix.with_name(prefix.name + ".idx"), struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, uint16, count, count + 1),
          struct.pack(f"<{count}i", *lengths), struct.pack(f"<{count}q", *begins[:-1]),
          struct.pack(f"<{count + 1}q", *range(count + 1)))  # fmt: skip


def write_llm_c(prefix, documents):
    """The end-of-text token in front of each document."""
    header = [LLM_C_MAGIC, 1, sum(len(tokens) + 1 for tokens in documents)]
    header += [0] * (LLM_C_HEADER - len(header))
    write(prefix.with_name(prefix.name + ".llm_c.bin"), struct.pack(f"<{LLM_C_HEADER}i", *header),
          *(struct.pack(f"<{len(tokens) + 1}H", 0, *tokens) for tokens in documents))  # fmt: skip


def train_tokenizer(texts, vocabulary):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, length=len(texts), trainer=trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=sys.stderr.isatty()))  # fmt: skip
    return tokenizer


def encode(tokenizer, texts):
    documents, block = [], 1000
    for begin in range(0, len(texts), block):
        documents += [encoding.ids for encoding in tokenizer.encode_batch(texts[begin : begin + block])]
        print(f"{len(documents)}/{len(texts)} documents", file=sys.stderr)
    return documents


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prefix", type=pathlib.Path)
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="of Debian; by default %(default)s")
    parser.add_argument("--debs", type=pathlib.Path, help="folder that keeps the packages; by default PREFIX.debs")
    parser.add_argument("--vocabulary", type=int, default=16384, help="tokens, 257 to 65536; by default %(default)s")
    parser.add_argument("--llm-c", action="store_true", help="also write llm.c's format")
    options = parser.parse_args()
    if not 257 <= options.vocabulary <= 65536:
        parser.error("--vocabulary: tokens of 16 bits, and one for each byte: 257 to 65536")
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        sys.exit(f"make_tokens.py: {error}: pip install tokenizers")
    prefix = options.prefix.absolute()
    prefix.parent.mkdir(parents=True, exist_ok=True)
    debs = fetch(options.packages, options.debs or prefix.with_name(prefix.name + ".debs"))
    texts = list(documents_of(debs))
    if not texts:
        sys.exit(f"make_tokens.py: there is no text in {', '.join(options.packages)}")
    tokenizer = train_tokenizer(texts, options.vocabulary)
    documents = encode(tokenizer, texts)
    write_megatron(prefix, documents)
    if options.llm_c:
        write_llm_c(prefix, documents)
    write(prefix.with_name(prefix.name + ".tokenizer.json"), tokenizer.to_str().encode())
    count = sum(len(tokens) + 1 for tokens in documents)
    print(f"{prefix}.bin: {len(documents)} documents, {count} tokens of {tokenizer.get_vocab_size()}, "
          f"{sum(map(len, texts)) / count:.2f} characters each")  # fmt: skip


if __name__ == "__main__":
    main()
