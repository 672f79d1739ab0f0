"""Names that must not appear: the compiler that framejit replaces, paths of one machine, registry hosts, notes to
self."""
import re

import terms
from project import files, read, report

# torch's own compiler: allowed where framejit is compared with it, and in the lists of names that user programs call
# and that the tracer recognises without importing them.
FOREIGN = re.compile(r"(?:import|from)\s+torch\.(?:_dynamo|_inductor|_functorch|fx|jit)\b"
                     r"|torch\.(?:_dynamo|_inductor|_functorch|fx|jit)\.|torch\.compile\("
                     r"|\"torch\._(?:dynamo|inductor|functorch)")
FOREIGN_ALLOWED = re.compile(r"^(?:benchmarks|tests|docs)/|^README\.md$"
                             r"|^frame_hook/trace/torch/special\.(?:def|cpp)$"
                             r"|^frame_hook/trace/torch/special_functions\.def$"
                             r"|^frame_hook/trace/values/originals\.def$"
                             r"|^frame_hook/resume/stance\.cpp$"
                             r"|^python/framejit/torch_settings\.py$")
# the package starts none
PROCESS = re.compile(r"\b(?:subprocess|multiprocessing|Popen|os\.(?:system|popen|exec\w*|spawn\w*|posix_spawn\w*))\b")
EVERYWHERE = [
    (re.compile(r"/(?:work|root|home)/|\bshared/(?:facts|design|prototypes|hooks)\b"), "a path of one machine"),
    (re.compile(r"py[p]i\.org|pythonho[s]ted|deb\.debi[a]n\.org"), "a registry host"),
    (re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b"), "a note to self"),
]
# Names whose word has another meaning now (docs/style.md). tests/lint/terms.py says which folders have which words.
OLD = [
    (re.compile(r"\bFJ_CHECK\b|\bcheck_(?:step|arguments|signature|group|overlap|code|together)\b"), "check"),
    (re.compile(r"\b(?:Op|Output|Target|Kernel)Facts\b|\bfacts_of\("), "fact"),
    (re.compile(r"\bhomes\.h\b|\bgo_on\(|\bsay_once\b|\beager_kernels\b"), "home, go on, say or eager"),
]
OLD_IN = re.compile(r"^(?:runtime|graph|guards|frame_hook|inductor|python)/.*\.(?:h|cpp|def|pyi?)$")
SUFFIXES = (".cpp", ".h", ".def", ".py", ".pyi", ".hip", ".txt", ".md", ".cmake", ".toml", "")


def check(path: str, text: str) -> list[str]:
    found = terms.check(path, text)
    for number, line in enumerate(text.splitlines(), 1):
        if FOREIGN.search(line) and not FOREIGN_ALLOWED.search(path):
            found.append(f"{path}:{number}: leans on torch's compiler: {line.strip()[:100]}")
        if path.startswith("python/") and PROCESS.search(line) and "sys.modules" not in line:
            found.append(f"{path}:{number}: starts a process: {line.strip()[:100]}")
        found += [f"{path}:{number}: \"{word}\" means something else (docs/style.md): {line.strip()[:100]}"
                  for pattern, word in OLD if OLD_IN.match(path) and pattern.search(line)]
        found += [f"{path}:{number}: {why}: {line.strip()[:100]}" for pattern, why in EVERYWHERE
                  if pattern.search(line)]
    return found


if __name__ == "__main__":
    report("names", [finding for p in files(*SUFFIXES) if p.name != "names.py" for finding in check(str(p), read(p))])
