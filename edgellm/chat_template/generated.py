"""The Python that Jinja makes of a template, with the meter's questions written into it.

What the sandbox cannot intercept by itself: loops, literal lists, slices, `~` and comparisons. Every hook calls a
method of `sandbox.py`'s environment. Knows Jinja's code generator; imported only when a template is compiled.
"""

from __future__ import annotations

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame


class MeteredCode(CodeGenerator):
    """Writes `environment.tick()` into loops, and passes what literals and slices make to `environment.made`."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """Count each turn of a loop."""
        # Jinja's own statement for an expression; without its `do` extension no template can write one.
        node.body.insert(0, nodes.ExprStmt(nodes.Const(None), lineno=node.lineno))
        super().visit_For(node, frame)

    def visit_ExprStmt(self, node: nodes.ExprStmt, frame: Frame) -> None:
        """Write what `visit_For` put in."""
        self.writeline("environment.tick()", node)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Weigh a list that is not constant."""
        if all(isinstance(item, nodes.Const) for item in node.items):
            super().visit_List(node, frame)
        else:
            self.write("environment.made(")
            super().visit_List(node, frame)
            self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Weigh a tuple that is made; one that names targets stays as it is."""
        if node.ctx != "load" or all(isinstance(item, nodes.Const) for item in node.items):
            super().visit_Tuple(node, frame)
        else:
            self.write("environment.made(")
            super().visit_Tuple(node, frame)
            self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Weigh a mapping."""
        self.write("environment.made(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Weigh a slice, which is a copy."""
        if isinstance(node.arg, nodes.Slice):
            self.write("environment.made(")
            super().visit_Getitem(node, frame)
            self.write(")")
        else:
            super().visit_Getitem(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Join texts (`~`) where their length is known before they are joined."""
        self.write("environment.join_parts(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        """Compare texts by what they say, marks or not; a chain of comparisons stays Python's."""
        if len(node.ops) != 1:
            super().visit_Compare(node, frame)
            return
        self.write(f"environment.compare({node.ops[0].op!r}, ")
        self.visit(node.expr, frame)
        self.write(", ")
        self.visit(node.ops[0].expr, frame)
        self.write(")")
