"""Run as a process of its own by the tests that need TVM: one request a line (JSON), one answer a line.

It imports TVM once for a whole test session. `schema` gives TVM's own reflection, `examples` the JSON of a
few modules, `compare` whether two JSON graphs are structurally equal, `well_formed` what TVM has against
modules.
"""

import json
import os
import sys

os.environ["TVM_NUM_THREADS"] = "1"

KINDS = {1: "int", 2: "bool", 3: "float", 5: "dtype"}


def declared(field):
    if field.field_static_type_index in KINDS:
        return KINDS[field.field_static_type_index]
    text = (field.metadata or {}).get("type_schema")
    return "@" + (flat(json.loads(text)) if text else "")


def flat(schema):
    return schema["type"] + (f"<{','.join(map(flat, schema['args']))}>" if "args" in schema else "")


def schema(request):
    import tvm_ffi
    from tvm_ffi import core

    keys = sorted(map(str, tvm_ffi.registry.get_registered_type_keys()))
    infos = {key: core._lookup_or_register_type_info_from_type_key(key) for key in keys}
    by_index = {info.type_index: info for info in infos.values()}
    table = {}
    for key in request["keys"]:
        chain = [*infos[key].type_ancestors, infos[key].type_index]
        fields = [field for index in chain if index in by_index for field in by_index[index].fields or []]
        table[key] = {field.name: declared(field) for field in fields}
    return table


def examples(request):
    import tvm
    import tvm_modules

    return [tvm.ir.save_json(module) for module in tvm_modules.MODULES]


def compare(request):
    import tvm
    import tvm_ffi

    left, right = (tvm.ir.load_json(text) for text in request["texts"])
    return bool(tvm_ffi.structural_equal(left, right))


def well_formed(request):
    """What TVM says against each module; None where it says nothing. It infers every type anew and
    compares.
    """
    import tvm

    answers = []
    for text in request["texts"]:
        try:
            tvm.relax.analysis.well_formed(tvm.ir.load_json(text))
            answers.append(None)
        except Exception as error:  # noqa: BLE001 - whatever TVM raises is the answer
            answers.append(str(error)[-500:])
    return answers


def main():
    import tvm.relax
    import tvm.s_tir
    import tvm.te
    import tvm.tirx  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints is no answer
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"value": globals()[request["do"]](request)}
        except Exception as error:  # noqa: BLE001 - whatever TVM raises is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
