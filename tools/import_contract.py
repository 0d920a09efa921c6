"""An import-linter contract: a package may import an allow-list and nothing else.

import-linter's own "forbidden" contract takes a list of what is banned, so a new dependency would
slip through. This one names what is allowed: the standard library less `banned_stdlib`, the
packages in `allowed`, and the package itself. The layers contract rules on the rest of Pillarbox.
"""

from __future__ import annotations

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class AllowedContract(Contract):
    source_package = fields.StringField()
    allowed = fields.SetField(subfield=fields.StringField())
    banned_stdlib = fields.SetField(subfield=fields.StringField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        options: Any = self
        source = options.source_package
        own_root = source.partition(".")[0]
        permitted = (sys.stdlib_module_names | options.allowed | {own_root}) - (
            options.banned_stdlib or set()
        )
        broken = [
            (module, imported)
            for module in sorted({source} | graph.find_descendants(source))
            for imported in sorted(graph.find_modules_directly_imported_by(module))
            if imported.partition(".")[0] not in permitted
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for module, imported in check.metadata["broken"]:
            output.print_error(f"{module} is not allowed to import {imported}", bold=True)
