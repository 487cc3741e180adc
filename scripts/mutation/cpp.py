# SPDX-License-Identifier: Apache-2.0
"""Parses as much of C++ as is needed to find mutants: tokens, brackets, calls and functions. It does not use a compiler, so in
one place it relies on the project's formatting: a `<` is a comparison, not a bracket, if there is a space before it. clang-format
makes sure of that."""

import bisect
import re

_TOKEN = re.compile(
    r"""
    (?P<skip>  \s+ | //[^\n]* | /\*.*?\*/ | ^[ \t]*\#(?:\\\n|[^\n])* )
  | (?P<string>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]*)\(.*?\)(?P=delimiter)"
             | (?:u8|[uUL])?"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+' )
  | (?P<number>\.?\d(?:'?[\w.]|(?<=[eEpP])[+-])* )
  | (?P<name>  [A-Za-z_]\w* )
  | (?P<sign>  <=>|<<=|->\*|\.\.\.|::|->|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|. )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_BLOCKS = {"if", "for", "while", "switch", "catch", "do", "else", "try", "return"}
_NO_NAMES = {"alignas", "requires"}
_TYPES = {"class", "struct", "union", "enum", "namespace", "concept"}
# The tokens that may be before a call without an object. Before a declaration there is a type.
_BEFORE_CALL = {"(", ")", "{", "}", "[", ",", ";", ":", "?", "=", "!", "&&", "||", "==", "!=",
                "return", "else", "do"}  # fmt: skip


class Token:
    __slots__ = ("kind", "text", "begin", "end", "space_before")

    def __init__(self, kind, text, begin, space_before):
        self.kind, self.text, self.begin, self.end = kind, text, begin, begin + len(text)
        self.space_before = space_before


class Source:
    """A header: its text, its tokens, and their structure."""

    def __init__(self, name, text):
        self.name, self.text = name, text
        self.tokens = self._tokenize()
        self.partner = self._match_brackets()
        self._line_begins = [0] + [i + 1 for i, c in enumerate(text) if c == "\n"]
        self._functions = self._find_functions()

    def __getitem__(self, i):
        """Returns the text of token i, or nothing beyond either end."""
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def span(self, first, last):
        """Returns the text from token `first` to token `last`, on one line, without comments."""
        parts = []
        for i in range(first, last + 1):
            if i > first and self.tokens[i].space_before:
                parts.append(" ")
            parts.append(self.tokens[i].text)
        return "".join(parts)

    def line_of(self, i):
        return bisect.bisect_right(self._line_begins, self.tokens[i].begin)

    def function_of(self, i):
        """Returns the name of the function that token i is in, or nothing outside of functions."""
        for first, last, name in self._functions:
            if first <= i <= last:
                return name
        return ""

    def names(self):
        return (i for i, token in enumerate(self.tokens) if token.kind == "name")

    # ---- Calls

    def is_call(self, i):
        """Returns whether the name at i is called here, not declared or defined."""
        if self[i + 1] != "(" or self[i - 1] in ("::", "~", "operator"):
            return False
        if not self.function_of(i):
            return False  # It declares something, or initialises a member.
        return self[i - 1] in (".", "->") or self[i - 1] in _BEFORE_CALL

    def is_statement(self, i):
        """Returns whether the call of the name at i is a whole statement, or all that is returned."""
        first = self.object_begin(i)
        return self[self.partner[i + 1] + 1] == ";" and self[first - 1] in ("{", "}", ";", ")", "else", "return")

    def object_begin(self, i):
        """Returns where the postfix expression that ends in the name at i begins, which is a in a.b[c].name."""
        while self[i - 1] in (".", "->", "::"):
            i -= 1
            if self[i] == "::" and self.tokens[i - 1].kind != "name":
                return i  # ::name
            i -= 1
            while self[i] in (")", "]", "}"):
                i = self.partner[i]
                if self._ends_before(i):
                    return i
                i -= 1
        return i

    def _ends_before(self, i):
        """Returns whether the expression that continues at the bracket i begins there."""
        before = self.tokens[i - 1]
        if before.text == ")":
            return self[self.partner[i - 1] - 1] in _BLOCKS  # The condition of a statement.
        return before.text in _BLOCKS or before.kind != "name" and before.text != "]"

    def arguments(self, i):
        """Returns the arguments of the call of the name at i, as pairs of first and last token."""
        opening = i + 1
        found, first = [], opening + 1
        for j in range(opening + 1, self.partner[opening] + 1):
            if j == self.partner[opening] or (self[j] == "," and self._enclosing(j) == opening):
                if j > first:
                    found.append((first, j - 1))
                first = j + 1
        return found

    def operands(self, i):
        """Returns roughly the first and last token of the comparison whose operator is token i, for display."""
        ends = {";", ",", "&&", "||", "?", ":", "{", "}", "=", "return"}
        first, last = self.partner.get(i - 1, i - 1), i + 1
        while self[first - 1] not in ends and self[first - 1] not in _CLOSING:
            first = self.partner.get(first - 1, first - 1)
        while self[last + 1] not in ends and self[last + 1] not in (")", "]", ""):
            last = self.partner.get(last + 1, last + 1)
        return first, last

    # ---- Reading the text

    def _tokenize(self):
        tokens, space = [], False
        for match in _TOKEN.finditer(self.text):
            if match.lastgroup == "skip" or match["skip"]:
                space = True
                continue
            kind = next(k for k in ("string", "number", "name", "sign") if match[k] is not None)
            tokens.append(Token(kind, match[0], match.start(), space))
            space = False
        return tokens

    def _match_brackets(self):
        partner, stack = {}, []
        for i, token in enumerate(self.tokens):
            if token.kind != "sign":
                continue
            if token.text in _CLOSING:
                stack.append(i)
            elif token.text in _CLOSING.values():
                opening = stack.pop()
                if _CLOSING[self[opening]] != token.text:
                    raise SystemExit(f"{self.name}:{self.line_of(i)}: brackets do not match")
                partner[opening], partner[i] = i, opening
        return partner

    def _enclosing(self, i):
        """Returns the opening bracket around token i."""
        i -= 1
        while i >= 0 and self[i] not in _CLOSING:
            i = self.partner.get(i, i) - 1
        return i

    def _find_functions(self):
        """Returns (first, last, name) of every function body that is in no other one."""
        found, begin, i = [], 0, 0
        while i < len(self.tokens):
            text = self[i]
            if text == "{":
                name = self._function_name(begin, i)
                if name and self[self.partner[i] + 1] in (",", "{"):  # Initialises a member.
                    i = self.partner[i] + 1
                    continue
                if name:
                    found.append((i, self.partner[i], name))
                    i = self.partner[i]
                begin = i + 1
            elif text in (";", "}") or (text == ":" and self[i - 1] in ("public", "private", "protected")):
                begin = i + 1
            i += 1
        return found

    def _function_name(self, begin, brace):
        """Returns the name that the declaration between `begin` and a brace declares, if it is that of a function."""
        if any(self[i] in _TYPES for i in range(begin, min(begin + 1, brace))) or self[begin] in _BLOCKS:
            return None
        i = begin
        while i < brace:
            if self[i] == "<" and self[i - 1] == "template":
                i = self._template_end(i)
                if self[i + 1] in _TYPES:
                    return None
            before = {"~": "~", "operator": "operator "}.get(self[i - 2], "")
            if self[i] == "(" and (self.tokens[i - 1].kind == "name" or before) and self[i - 1] not in _NO_NAMES:
                return before + self[i - 1]
            i = self.partner[i] + 1 if self[i] in _CLOSING else i + 1
        return None

    def _template_end(self, i):
        depth = 0
        while True:
            depth += {"<": 1, ">": -1}.get(self[i], 0)
            if depth == 0:
                return i
            i += 1
