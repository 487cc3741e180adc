# SPDX-License-Identifier: Apache-2.0
"""Reads the public names of the headers from Doxygen's XML. Finds names without a docstring, and writes a page for each
header in Markdown, for MyST and Sphinx's C++ domain.

Breathe is made for this, but it drops requires clauses and the definitions of concepts, does not show members in the order
of the header, and shows members of penstock::detail.
"""

import dataclasses
import functools
import os
import pathlib
import re
import shutil
import subprocess
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDERS = ["include", "src/emulation/include", "src/images/include", "src/trace/include"]
SEPARATOR = "\N{MODIFIER LETTER APOSTROPHE}"  # of digits, for Doxygen


@dataclasses.dataclass
class Name:
    """A public name: a class, a concept, a function, a variable, an alias, an enumeration or a value of one."""

    kind: str
    name: str  # with its namespaces and classes
    file: str  # below a folder of FOLDERS
    line: int
    doc: str  # Markdown
    signature: str
    definition: str = ""  # of a concept; a constraint that the signature does not show
    members: list = dataclasses.field(default_factory=list)

    def all(self):
        yield self
        for member in self.members:
            yield from member.all()


def public_headers():
    """Maps the name in #include <...> to the path of the header."""
    return {str(path.relative_to(ROOT / folder)): path
            for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.hpp"))
            if "detail" not in path.relative_to(ROOT / folder).parts}  # fmt: skip


def page_of(header):
    """Returns the site's page of a public header."""
    return f"reference/{header.removeprefix('penstock/').removesuffix('.hpp')}.md"


# ---- Docstrings -------------------------------------------------------------------------------------

SPECIAL = r"([\\*_<>\[\]`{}~|])"


@functools.cache
def headers_by_name():
    return {header.rpartition("/")[2]: header for header in public_headers()}


def escaped(text):
    """Escapes the text for Markdown. Names of headers and pages of the project become links."""
    parts = re.split(r"((?:[\w-]+/)*[\w-]+\.(?:hpp|md)\b)", text)
    for i, part in enumerate(parts):
        plain = re.sub(SPECIAL, r"\\\1", part)
        header = headers_by_name().get(part.rpartition("/")[2]) if i % 2 else None
        if header and f"penstock/{header}".endswith(f"/{part}"):
            plain = f"[{plain}](/{page_of(header)})"
        elif i % 2 and (ROOT / part).is_file() and part.endswith(".md"):
            plain = f"[{plain}](/{part})"
        parts[i] = plain
    return "".join(parts)


def flat(node):
    return "".join(node.itertext())


SYMBOLS = {"ndash": "--", "mdash": "---", "nonbreakablespace": " ", "linebreak": "\\\n", "lsquo": "‘", "rsquo": "’"}


class Unknown(Exception):
    """A docstring contains an element that Docstrings does not know. Add it there, or write the docstring in another way."""


class Docstrings:
    """Converts Doxygen's XML to Markdown. References become links."""

    def __init__(self, names):
        self.names = names  # id -> name

    def text(self, node):
        if node is None:
            return ""
        return "\n\n".join(block for block in self.blocks(node) if block)

    def blocks(self, node):
        for child in node:
            if child.tag in ("para", "parblock", "sect1"):
                yield from self.paragraph(child)
            else:
                raise Unknown(child.tag)

    def paragraph(self, node):
        line = escaped(node.text or "")
        for child in node:
            if child.tag in ("itemizedlist", "orderedlist"):
                yield line.strip()
                sign = "- " if child.tag == "itemizedlist" else "1. "
                yield "\n".join(sign + self.text(item).replace("\n", "\n" + " " * len(sign)) for item in child)
                line = ""
            elif child.tag == "verbatim":
                yield line.strip()
                yield "```text\n" + (child.text or "").strip("\n") + "\n```"
                line = ""
            elif child.tag == "programlisting":
                raise Unknown("example: it belongs into the comment at the top of the header, where tests find it")
            else:
                line += escaped(flat(child)) if child.tag == "ref" and is_word(flat(child), line) else self.inline(child)
            line += escaped(child.tail or "")
        yield line.strip()

    def inline(self, node):
        if node.tag == "computeroutput":
            text = flat(node)
            return f"`` {text} ``" if "`" in text else f"`{text}`"
        if node.tag == "ref":
            name, text = self.names.get(node.get("refid")), flat(node)
            return f"{{cpp:any}}`{text} <{name}>`" if name and "`" not in text else escaped(text)
        if node.tag == "ulink":
            return f"[{escaped(flat(node))}]({node.get('url')})"
        if node.tag in ("bold", "emphasis"):
            mark = "**" if node.tag == "bold" else "*"
            return mark + escaped(flat(node)) + mark
        if node.tag in SYMBOLS:
            return SYMBOLS[node.tag]
        raise Unknown(node.tag)


def as_sentence(text):
    """Makes the first letter a capital and adds a full stop, since the comment behind a member is often no sentence."""
    if re.match(r"[a-z][a-z'-]*([ ,:;]|$)", text):
        text = text[0].upper() + text[1:]
    return text if not text or text.startswith("(") or re.search(r"[.:!?|]$|^```$", text.splitlines()[-1]) else text + "."


def is_word(text, before):
    """Returns whether the text, as the first word of a sentence, is an English word and not the class of that name."""
    return re.fullmatch("[A-Z][a-z]+", text) is not None and re.search(r"(^|[.:;] )$", before) is not None


# ---- Declarations -----------------------------------------------------------------------------------


def words(text):
    """Returns the C++ code without Doxygen's spaces in < and >."""
    text = re.sub(r"\s+", " ", text).strip().replace(SEPARATOR, "'")
    text = re.sub(r"\[\[.*?\]\]|PENSTOCK_\w+|__attribute__\(\(.*?\)\)", "", text)
    text = re.sub(r"< ", "<", re.sub(r" >", ">", text))
    return text.strip()


def template(node):
    parameters = node.find("templateparamlist")
    if parameters is None:
        return ""
    shown = []
    for parameter in parameters:
        text = words(flat(parameter.find("type")))
        name, default = parameter.find("declname"), parameter.find("defval")
        if name is not None and not text.endswith(" " + name.text):
            text += f" {name.text}"
        shown.append(text + (f" = {words(flat(default))}" if default is not None else ""))
    return f"template<{', '.join(shown)}> "


def constraint(node):
    clause = node.find("requiresclause")
    text = words(flat(clause)) if clause is not None else ""
    return "" if "detail::" in text else text


def requires(node):
    """Returns the requires clause, unless it is an expression. Sphinx cannot read that, so it is shown below the declaration."""
    text = constraint(node)
    return f"requires {text} " if text and not text.startswith("requires") else ""


def function_signature(node):
    arguments, kind = words(flat(node.find("argsstring"))), words(flat(node.find("type")))
    kind = re.sub(r"^(static|constexpr|virtual)\b *", "", re.sub(r"\binline\b *", "", kind))
    arguments = re.sub(r"\brequires\b.*$", "", arguments).strip()
    prefix = "static " if node.get("static") == "yes" else "explicit " if node.get("explicit") == "yes" else ""
    if node.get("constexpr") == "yes" or "constexpr" in words(flat(node.find("type"))):
        prefix += "constexpr "
    condition = requires(node)
    if node.find("templateparamlist") is not None:
        return f"{template(node)}{condition}{prefix}{kind} {node.find('name').text}{arguments}"
    return f"{prefix}{kind} {node.find('name').text}{arguments} {condition}".strip()


def variable_signature(node):
    kind = words(flat(node.find("type")))
    value = node.find("initializer")
    value = words(flat(value)) if value is not None else ""
    if "detail::" in value or len(value) > 60:
        value = ""
    prefix = "static " if node.get("static") == "yes" else ""
    arguments = node.find("argsstring").text or ""
    kind = re.sub(r"^(inline|static) ", "", kind)
    space = "" if value.startswith("{") else " "
    return f"{prefix}{kind} {node.find('name').text}{words(arguments)}{space}{value}".strip()


def signature(node):
    kind = node.get("kind")
    if kind == "function":
        return function_signature(node)
    if kind == "variable":
        return variable_signature(node)
    if kind == "enum":
        return node.find("name").text
    target = words(flat(node.find("type")))  # of an alias
    target = "" if "detail::" in target else f" = {target}"
    return f"{template(node)}{node.find('name').text}{target}"


def says_itself(node):
    """Returns whether this is a copy, a move, a destructor, or a defaulted or deleted function, which need no docstring."""
    arguments, name = flat(node.find("argsstring")), node.find("name").text
    owner = (node.findtext("qualifiedname") or name).split("::")[-2:-1]
    if re.search(r"=\s*(default|delete)\s*$", arguments) or name.startswith("~"):
        return True
    return owner and name in (owner[0], "operator=") and re.match(rf"\((const )?{owner[0]}(< .* >)? ?&&? ?\w*\)", arguments)


def is_hidden(node):
    """Returns whether the function takes or returns something of penstock::detail, so that only the library can use it."""
    if node.get("kind") not in ("function", "variable"):
        return False
    return "detail::" in flat(node.find("type")) or any("detail::" in flat(p.find("type")) for p in node.findall("param"))


class Reader:
    def __init__(self, folder):
        self.files = [xml.etree.ElementTree.parse(path).getroot()[0]
                      for path in sorted(folder.glob("*.xml")) if path.name not in ("index.xml", "Doxyfile.xml")]  # fmt: skip
        self.inline = [f"{node.find('compoundname').text}::" for node in self.files if node.get("inline") == "yes"]
        ids = {}
        for compound in self.files:
            ids[compound.get("id")] = compound.find("compoundname").text
            for member in compound.iter("memberdef"):
                ids[member.get("id")] = self.name(member)
        self.docstrings = Docstrings({key: name for key, name in ids.items() if name.startswith("penstock")})
        self.compounds = {compound.find("compoundname").text: compound for compound in self.files}

    def name(self, node):
        """Returns the name with namespaces and classes, but without inline namespaces."""
        name = node.findtext("qualifiedname") or node.find("name").text
        for space in self.inline:
            name = name.replace(space, space.removesuffix("::").rpartition("::")[0] + "::")
        return name

    def doc(self, node):
        try:
            texts = [self.docstrings.text(node.find(part)) for part in ("briefdescription", "detaileddescription")]
        except Unknown as problem:
            file, line = self.place(node) if node.find("location") is not None else (flat(node.find("name")), 0)
            raise SystemExit(f"{file}:{line}: the docstring has <{problem}>; see Unknown in scripts/doc_site/api.py") from None
        return as_sentence("\n\n".join(text for text in texts if text))

    def place(self, node):
        location = node.find("location")
        return location.get("file"), int(location.get("line"))

    def member(self, node):
        name = self.name(node)
        found = Name(node.get("kind"), name, *self.place(node), self.doc(node), signature(node))
        if constraint(node).startswith("requires"):
            found.definition = f"requires {constraint(node)}"
        if found.kind == "enum":
            found.kind = "enum-class" if node.get("strong") == "yes" else "enum"
            found.members = [Name("enumerator", f"{name}::{value.find('name').text}", found.file, found.line,
                                  self.doc(value), value.find("name").text)
                             for value in node.findall("enumvalue")]  # fmt: skip
        return found

    def members(self, compound):
        found = []
        for node in compound.findall("sectiondef/memberdef"):
            if node.get("prot") != "public" or node.get("kind") == "friend" or is_hidden(node):
                continue
            if node.get("kind") == "function" and says_itself(node) and not self.doc(node):
                continue
            if node.find("name").text.startswith("@") or not node.find("name").text:
                continue
            found.append(self.member(node))
        for inner in compound.findall("innerclass"):
            if inner.get("prot") == "public" and inner.text in self.compounds:
                found.append(self.compound(self.compounds[inner.text]))
        return share_docstrings(sorted(found, key=lambda member: member.line))

    def compound(self, node):
        name = node.find("compoundname").text
        found = Name(node.get("kind"), name, *self.place(node), self.doc(node), "")
        if found.kind == "concept":
            found.signature = f"{template(node)}{name.split('::')[-1]}"
            text = flat(node.find("initializer")).strip().replace(name, name.split("::")[-1]).replace("=  ", "= ")
            found.definition = re.sub(r"\s*\n\s*noexcept;", " noexcept;", text)
            return found
        bases = [base.text for base in node.findall("basecompoundref") if base.get("prot") == "public"]
        final = " final" if node.get("final") == "yes" else ""
        found.signature = f"{template(node)}{requires(node)}{name.split('::')[-1]}{final}" + (
            f" : {', '.join('public ' + words(base) for base in bases)}" if bases else "")  # fmt: skip
        found.members = self.members(node)
        return found

    def names(self):
        """Returns all names at namespace level, ordered by file and line."""
        found = []
        for compound in self.files:
            kind, name = compound.get("kind"), compound.find("compoundname").text
            if kind == "namespace" and name.startswith("penstock"):
                found += self.members_of_namespace(compound)
            elif kind in ("class", "struct", "union", "concept") and name.startswith("penstock"):
                outer = name.rpartition("::")[0]
                if self.compounds.get(outer) is None or self.compounds[outer].get("kind") == "namespace":
                    found.append(self.compound(compound))
        found.sort(key=lambda name: (name.file, name.line))
        return share_docstrings(found)

    def members_of_namespace(self, compound):
        for node in compound.findall("sectiondef/memberdef"):
            if not is_hidden(node) and not (node.get("kind") == "function" and says_itself(node)):
                yield self.member(node)


def share_docstrings(names):
    """A declaration of several variables has one docstring, which Doxygen gives to one of them."""
    for i, name in enumerate(names):
        same = [other for other in names if name.kind == other.kind == "variable" and (other.file, other.line) == (name.file, name.line)]
        if len(same) > 1 and name is same[-1]:
            doc = next((other.doc for other in same if other.doc and other.doc != SHARED), "")
            for other in same:
                other.doc = doc if other is same[-1] else SHARED if doc else ""
    return names


SHARED = "<shared>"  # the docstring stands below the next signature


def readable(text):
    """Replaces the ' of 10'000. Doxygen 1.9 takes it for the begin of a character, and then assigns docstrings wrongly."""
    return re.sub(r"(?<=\d)'(?=\d)", SEPARATOR, text)


def read(folder):
    """Runs Doxygen and treats its warnings as errors."""
    shutil.rmtree(folder, ignore_errors=True)
    for header, path in public_headers().items():
        copy = folder / "headers" / header
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(readable(path.read_text()))
    settings = (HERE / "Doxyfile").read_text() + f'\nOUTPUT_DIRECTORY = "{folder}"\n'
    settings += f'INPUT = "{folder}/headers"\nSTRIP_FROM_PATH = "{folder}/headers"\n'
    try:
        done = subprocess.run(["doxygen", "-"], input=settings, text=True, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    except OSError as problem:
        raise SystemExit(f"docs: doxygen: {problem.strerror}; scripts/setup docs installs it") from None
    warnings = [line.removeprefix(f"{folder}/headers/") for line in (done.stderr + done.stdout).splitlines() if line.strip()]
    if done.returncode or warnings:
        raise SystemExit("\n".join([*warnings, "docs: Doxygen does not understand these docstrings"]))
    return Reader(folder / "xml").names()


def undocumented(names):
    """Returns lines for the user that say which names have no docstring, and where they are."""
    paths = public_headers()
    for name in (name for top in names for name in top.all()):
        if not name.doc:
            yield f"{paths[name.file].relative_to(ROOT)}:{name.line}: {name.name} has no docstring"


# ---- Pages ------------------------------------------------------------------------------------------

DIRECTIVES = {"function": "function", "variable": "member", "typedef": "type", "enum": "enum", "enum-class": "enum-class",
              "enumerator": "enumerator", "class": "class", "struct": "struct", "union": "union", "concept": "concept"}  # fmt: skip


def directive(name):
    parts = [name.doc] if name.doc != SHARED else []
    if name.definition:
        parts.append(f"```cpp\n{name.definition}\n```")
    parts += [directive(member) for member in name.members]
    inside = "\n\n".join(parts)
    fence = ":" * (2 + max([len(mark) for mark in re.findall(r"^(:{3,})", inside, re.M)] + [2]) - 1)
    return f"{fence}{{cpp:{DIRECTIVES[name.kind]}}} {name.signature}\n\n{inside}\n{fence}"


def opening(path):
    """Returns the comment at the top of a header as Markdown."""
    lines = path.read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if i and line.startswith("// ") and "SPDX" not in line)
    parts, code = [], None
    for line in lines[begin:]:
        if not line.startswith("//"):
            break
        text = line[3:]
        if text.startswith("  "):  # as tests/docs/examples/extract.py finds examples
            if code is None:
                code = len(parts)
                parts.append("```cpp")
            parts.append(text[2:])
        else:
            if code is not None and text:
                close_code(parts)
                code = None
            parts.append(text if code is not None else prose(text))
    if code is not None:
        close_code(parts)
    return "\n".join(parts)


def close_code(parts):
    blanks = 0
    while parts[-1] == "":
        parts.pop()
        blanks += 1
    parts += ["```", *[""] * max(1, blanks)]


def prose(text):
    if text.startswith("|"):
        return text
    return "".join(part if part.startswith("`") else escaped(part)
                   for part in re.split(r"(`[^`]*`)", text))  # fmt: skip


def page(header, path, names):
    text = [f"# {header.removeprefix('penstock/')}", f"```cpp\n#include <{header}>\n```", opening(path)]
    space = None
    for name in names:
        its = name.name.rpartition("::")[0]
        if its != space:
            text.append(f"```{{cpp:namespace}} {its}\n```")
            space = its
        text.append(directive(name))
    return "\n\n".join(text) + "\n"
