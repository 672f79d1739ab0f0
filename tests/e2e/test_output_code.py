"""FRAMEJIT_LOGS=output_code and schedule: what they print about kernels; and the backend that interprets kernels."""
import os
import re

import pytest
import torch

import framejit
import programs

PROGRAM = """
import torch
import framejit

@framejit.compile{options}
def f(x, w, b):
    {body}

with torch.no_grad():
    f(torch.randn(64, 96), torch.ones(96), torch.zeros(96))
"""


BODY = """y = torch.nn.functional.layer_norm(x, (96,), w, b)
    y = torch.tanh(y @ y.mT)
    return torch.softmax(y, -1)"""


def log_of(tmp_path, channels, options="", body=BODY, **environment):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(options=options, body=body))
    out = programs.run(file=path, env=dict(os.environ, FRAMEJIT_LOGS=channels, **environment))
    assert out.returncode == 0, out.stderr
    return out.stderr


def sections(log):
    """(first line, body) of each event."""
    parts = re.split(r"^(?=\[framejit )", log, flags=re.M)
    return [(p.splitlines()[0], p) for p in parts if p.strip()]


def test_each_kernel_has_its_ir_and_machine_independent_code_with_ops_and_lines(tmp_path):
    events = sections(log_of(tmp_path, "output_code"))
    forms = [(m.group(1), m.group(2)) for line, _ in events
             for m in [re.search(r"kernel (k\d+) as (\w+), \d+ lines", line)] if m]
    kernels = sorted({k for k, _ in forms})
    assert len(kernels) == 2
    assert {f for _, f in forms} == {"kernel_ir", "plan", "llvm"}
    assert sorted(forms) == sorted((k, f) for k in kernels for f in ("kernel_ir", "plan", "llvm"))
    first = dict(((k, f), body) for (k, f), (_, body) in zip(forms, events))
    norm, softmax = first[kernels[0], "kernel_ir"], first[kernels[1], "kernel_ir"]
    assert re.search(r"\| # program\.py:7 f: .*rsqrt", norm)
    assert re.search(r"\| # program\.py:8 f: tanh\n\| # program\.py:9 f: .*exp", softmax)
    assert "program.py:8" not in norm and "program.py:7" not in softmax
    assert re.search(r"\| ; program\.py:7 f: .*rsqrt", first[kernels[0], "llvm"])
    assert "define i64 @" in first[kernels[0], "llvm"]
    assert re.search(r"\| # program\.py:7 f: .*rsqrt[^|]*\| plan for \d+ registers", first[kernels[0], "plan"])


ROWS = """
import torch
import framejit

x = torch.randn(2100, 1030)
framejit.compile(lambda x: x.sum(0), dynamic=False)(x)
framejit.compile(lambda x: torch.softmax(x, -1), dynamic=False)(x)
framejit.compile(lambda x: torch.softmax(x, -1), dynamic=False)(x[:64].contiguous())
for n in (2400, 240):
    framejit.compile(lambda x: x.t() + x, dynamic=False)(torch.randn(n, n))
"""


def test_what_is_beyond_caches_has_slabs_and_prefetches():
    out = programs.run(ROWS, env=dict(os.environ, FRAMEJIT_LOGS="output_code,target"))
    assert out.returncode == 0, out.stderr
    columns, joined, large, small, large_tiles, small_tiles = (body for line, body in sections(out.stderr)
                                                               if "as llvm" in line)
    assert "alloca i8, i64 49152" in columns and "alloca i8" not in joined + large, ("accumulators of columns lie on "
        "the stack")
    if int(re.search(r"and (\d+) KiB, cores", out.stderr)[1]) >= 2 * 4 * 2400 ** 2 >> 10:
        pytest.skip("not tested: prefetches, because the caches of this processor hold what the test reads")
    assert "llvm.prefetch" in large and "llvm.prefetch" not in small
    assert "llvm.prefetch" in large_tiles and "llvm.prefetch" not in small_tiles


def test_assembly_on_request(tmp_path):
    log = log_of(tmp_path, "output_code", FRAMEJIT_ASSEMBLY="1")
    assembly = [body for line, body in sections(log) if "as assembly" in line]
    assert len(assembly) == 2 and all(re.search(r"\bret", body) and "| # program.py:" in body for body in assembly)


@pytest.mark.slow
def test_refused_pairs_are_named_with_a_reason(tmp_path):
    log = log_of(tmp_path, "schedule")
    assert re.search(r"schedule \S+: 0 pairs of nests with common data not fused", log)
    log = log_of(tmp_path, "schedule", body="y = torch.exp(x)\n    return (y @ y.mT) * y.sum()")
    pairs = re.findall(r"^\| (n\d+), (n\d+): (\w+): (.+)$", log, re.M)
    assert re.search(rf"schedule \S+: {len(pairs)} pairs of nests with common data not fused", log)
    assert ("n1", "n2", "order", "a step between them needs one of them and is needed by the other") in pairs


def test_dump_folder_gets_a_file_for_each_form(tmp_path):
    log_of(tmp_path, "output_code", FRAMEJIT_DUMP_DIR=str(tmp_path / "dump"))
    texts = [p.read_text() for p in sorted((tmp_path / "dump").rglob("*.txt"))]
    assert len(texts) == 6 and ["define i64 @" in t for t in texts] == [False, False, True] * 2


def test_interp_is_a_backend():
    assert "interp" in framejit.list_backends()

    def f(x):
        return torch.softmax(x * 2, -1).sum(0)

    x = torch.randn(5, 7)
    with torch.no_grad():
        torch.testing.assert_close(framejit.compile(f, backend="interp")(x), f(x))
        assert framejit.stats()["graphs"] == 1


@pytest.mark.parametrize("backend", ["interp"])
def test_interp_prints_no_machine_code(tmp_path, backend):
    log = log_of(tmp_path, "output_code", options=f"(backend={backend!r})")
    assert "as kernel_ir" in log and "as llvm" not in log


@pytest.mark.slow
def test_the_setting_of_vector_registers_is_followed():
    program = ("import torch, framejit\nwith torch.no_grad():\n"
               "    print(framejit.compile(lambda x: x * 2 + 1)(torch.arange(8.)).tolist(), "
               "framejit.stats()['kernels'])\n")
    for level, registers in (("generic", {"xmm"}), ("avx2", {"xmm", "ymm"})):
        done = programs.run(program, env={**os.environ, "FRAMEJIT_CPU_FEATURES": level, "FRAMEJIT_LOGS": "output_code",
                                   "FRAMEJIT_ASSEMBLY": "1"})
        assert done.stdout.split() == [*str((torch.arange(8.) * 2 + 1).tolist()).split(), "1"], done.stderr
        used = set(re.findall(r"\b([xyz]mm)\d+", done.stderr))
        assert used and used <= registers, used
