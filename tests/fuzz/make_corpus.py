#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus that are not text. Standard library only; the same bytes on every run."""
import base64, io, json, os, struct, tarfile, zipfile, zlib

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def save(target, name, data):
    os.makedirs(os.path.join(here, target), exist_ok=True)
    with open(os.path.join(here, target, name), "wb") as f:
        f.write(data)


def safetensors(entries, data, promised=None, metadata=None):
    header = json.dumps(({"__metadata__": metadata} if metadata else {}) | {
        name: {"dtype": dtype, "shape": shape, "data_offsets": offsets} for name, dtype, shape, offsets in entries}).encode()
    return struct.pack("<Q", len(header) if promised is None else promised) + header + data


def tar(members, form=tarfile.USTAR_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        end = archive.offset
    return out.getvalue()[:end] + b"\0" * 1024


def npy(descr, shape, data, version=1):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    size = struct.pack("<H" if version == 1 else "<I", len(header) + 1)
    return b"\x93NUMPY" + bytes([version, 0]) + size + header + b"\n" + data


def gguf(tensors, keys=()):
    """tensors: (name, dims, type, data); keys: (name, kind, value bytes)."""
    text = lambda t: struct.pack("<Q", len(t)) + t.encode()
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    out += b"".join(text(name) + struct.pack("<I", kind) + value for name, kind, value in keys)
    data = b""
    for name, dims, kind, bytes_ in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in reversed(dims))
        out += struct.pack("<IQ", kind, len(data))
        data += bytes_ + bytes(-len(bytes_) % 32)
    return out + bytes(-len(out) % 32) + data


def state_dict(tensors, nest=None):
    """The pickle of {name: tensor of floats}; storages are named by their place."""
    text = lambda t: b"X" + struct.pack("<I", len(t)) + t.encode()
    number = lambda i: b"J" + struct.pack("<i", i)
    tuple_ = lambda items: b"(" + b"".join(map(number, items)) + b"t"
    out = b"\x80\x02" + (b"}" + text(nest) if nest else b"") + b"}q\x00("
    for key, (name, shape) in enumerate(tensors):
        strides = [1]
        for n in reversed(shape[1:]):
            strides.insert(0, strides[0] * n)
        storage = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(str(key)) + text("cpu") + number(64) + b"tQ"
        out += text(name) + b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(0) + tuple_(shape) + tuple_(strides)
        out += b"\x89ccollections\nOrderedDict\n)RtR"
    return out + b"u" + (b"s" if nest else b"") + b"."


def torch_zip(tensors, nest=None):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr(zipfile.ZipInfo("archive/data.pkl"), state_dict(tensors, nest))
        for key in range(len(tensors)):
            z.writestr(zipfile.ZipInfo(f"archive/data/{key}"), bytes(256))
    return out.getvalue()


def torch_older(tensors):
    keys = b"\x80\x02](" + b"".join(b"X" + struct.pack("<I", len(str(k))) + str(k).encode() for k in range(len(tensors))) + b"e."
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    return (magic + b"\x80\x02M\xe9\x03." + b"\x80\x02}q\x00." + state_dict(tensors) + keys +
            b"".join(struct.pack("<q", 64) + bytes(256) for _ in tensors))


save("gguf", "two", gguf([("a.weight", [2, 32], 2, bytes(range(36))), ("a.bias", [2], 0, bytes(8))],
                         [("general.architecture", 8, struct.pack("<Q", 3) + b"wan"), ("general.alignment", 4, struct.pack("<I", 32))]))
save("gguf", "blocks", gguf([("q4", [1, 256], 12, bytes(144)), ("q6", [256], 14, bytes(210)), ("conv", [2, 1, 1, 2, 2], 0, bytes(32))],
                            [("comfy.gguf.orig_shape.q4", 9, struct.pack("<IQii", 5, 2, 16, 16)), ("split", 7, b"\x01")]))
BLOCK = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176),
         14: (256, 210), 20: (32, 18), 23: (256, 136), 24: (1, 1), 25: (1, 2), 0: (1, 4), 1: (1, 2), 30: (1, 2)}
save("gguf", "kinds", gguf([(f"t{kind}", [1, n], kind, bytes(range(1, size + 1))) for kind, (n, size) in BLOCK.items()]))
save("torch", "zip", torch_zip([("a.weight", [2, 3]), ("a.bias", [2])]))
save("torch", "nested", torch_zip([("a.weight", [64])], "state_dict"))
save("torch", "older", torch_older([("a.weight", [2, 3]), ("b", [64])]))
save("safetensors", "scaled", safetensors([("a.weight", "F8_E4M3", [2, 2], [0, 4]), ("a.scale_weight", "F32", [1], [4, 8]),
                                           ("b.weight", "F8_E5M2", [2, 2], [8, 12]), ("b.weight_scale", "F32", [2, 1], [12, 20]),
                                           ("scaled_fp8", "F8_E4M3", [0], [20, 20])], bytes(20)))
save("safetensors", "two", safetensors([("a", "F32", [2], [0, 8]), ("b.c", "BF16", [1, 2], [8, 12])], bytes(12),
                                       metadata={"format": "pt"}))
save("safetensors", "types", safetensors([("f", "F16", [], [0, 2]), ("e", "F8_E4M3", [2], [2, 4]),
                                          ("i", "I64", [1], [4, 12]), ("z", "F32", [0, 3], [12, 12])], bytes(range(12))))
save("safetensors", "none", safetensors([], b""))
save("safetensors", "overlap", safetensors([("a", "U8", [4], [0, 4]), ("b", "U8", [4], [2, 6])], bytes(6)))
save("safetensors", "huge", safetensors([("a", "F64", [1 << 61, 8], [0, 8])], bytes(8), promised=1 << 62))

clip = [("clips/a.mp4", b"not a video"), ("clips/a.json", b'{"caption": "a red ball", "frames": 17, "fps": 24}'),
        ("clips/a.txt", b"a red ball\n"), ("clips/b.MP4", b""), ("clips/b.latent.npy", npy("<f4", "(1, 2)", bytes(8)))]
save("tar", "ustar", tar(clip))
save("tar", "gnu", tar([("d/" * 60 + "long.mp4", b"x")] + clip[:1], tarfile.GNU_FORMAT))
save("tar", "pax", tar([("d/" * 60 + "l\u00f6ng.mp4", b"x")] + clip[:1], tarfile.PAX_FORMAT))
save("tar", "meta", tar([("__index__", b"skip"), ("nodot", b"skip"), ("a.mp4", b"1"), ("a.mp4", b"twice")]))
save("tar", "cut", tar(clip)[:1300])


def sparse(): # GNU's old header with one that goes on, and pax records of a sparse file
    block = bytearray(tar([("a.bin", b"x" * 20)], tarfile.GNU_FORMAT)[:512])
    block[156:157] = b"S"
    block[482] = 1
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    more = bytes(504) + bytes([0]) + bytes(7)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("GNUSparseFile.1/b.bin")
        info.size = 5
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.name": "b.bin"}
        archive.addfile(info, io.BytesIO(b"1\n0\n5"))
    return bytes(block) + more + b"x" * 20 + bytes(492) + out.getvalue()


save("tar", "sparse", sparse())

save("npy", "f4", npy("<f4", "(2, 3)", bytes(24)))
save("npy", "f2_version2", npy("<f2", "(4,)", bytes(8), version=2))
save("npy", "scalar", npy("<i8", "()", bytes(8)))
save("npy", "fortran", npy("<f4", "(2, 3)", bytes(24)).replace(b"False", b"True "))
save("npy", "huge", npy("<f8", "(4611686018427387904, 8)", bytes(8)))


def index(samples, strings, shard_bytes=4096):
    """A shard's index (src/data/index.h); its checksum is set by the target."""
    text = bytearray()
    place = {}
    for s in strings:
        place[s] = len(text)
        text += s.encode() + b"\0"
    text += b"\0" * (8 - len(text) % 8)
    parts = [p for s in samples for p in s[1]]
    shapes = [p[4] for p in parts if p[4]]
    out = b"weftidx1" + struct.pack("<qQQqqqqqQ", shard_bytes, 7, 9, len(samples), len(parts), len(shapes), len(text), -1, 0)
    for key, own in samples:
        out += struct.pack("<dIiiiBB6x", 24.0, place[key], 9, 64, 48, len(own), 1)
    at = 0
    for suffix, offset, size, total, shape in parts:
        out += struct.pack("<qqQIi", offset, size, total, place[suffix], at if shape else -1)
        at += shape is not None
    for dtype, dims in shapes:
        out += struct.pack("<6i", dtype, len(dims), *(list(dims) + [0] * (4 - len(dims))))
    return out + bytes(text)


save("index", "two", index([("a", [("json", 512, 20, 1, None), ("mp4", 1536, 700, 2, None)]), ("b", [("txt", 3072, 5, 0, None)])],
                           ["a", "b", "json", "mp4", "txt"]))
save("index", "array", index([("k", [("latent.npy", 512, 144, 3, (0, (1, 2, 2, 1)))])], ["k", "latent.npy"]))
save("index", "none", index([], [""]))


BYTES = ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
         "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
MAP = struct.pack("<II", 4, 0) + b"\0"  # a trie without children
BAR = "\u2581"
ADDED = [{"id": 1, "content": "<s>"}]
save("tokenizer", "unigram", json.dumps({
    "added_tokens": ADDED, "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(MAP).decode()},
    "pre_tokenizer": {"type": "Metaspace"},
    "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "<s>"}}],
                       "special_tokens": {"<s>": {"ids": [1]}}},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["<s>", 0], [BAR, -2], ["a", -3], ["ab", -4]]}}).encode())
save("tokenizer", "words", json.dumps({
    "added_tokens": [{"id": 1, "content": "[CLS]"}], "normalizer": {"type": "BertNormalizer", "lowercase": True, "handle_chinese_chars": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]"}}, {"Sequence": {"id": "A"}}],
                       "special_tokens": {"[CLS]": {"ids": [1]}}},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "vocab": {"[UNK]": 0, "[CLS]": 1, "a": 2, "##b": 3, "<": 4}}}).encode())
save("tokenizer", "pairs", json.dumps({
    "added_tokens": ADDED, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": BYTES}},
    "model": {"type": "BPE", "vocab": {"a": 0, "<s>": 1, "b": 2, "ab": 3}, "merges": [["a", "b"]]}}).encode())
save("tokenizer", "pieces", json.dumps({
    "added_tokens": ADDED, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": BAR},
    "model": {"type": "BPE", "byte_fallback": True, "vocab": {"a": 0, "<s>": 1, BAR: 2, BAR + "a": 3,
                                                              **{f"<0x{byte:02X}>": 4 + byte for byte in range(256)}},
              "merges": [[BAR, "a"]]}}).encode())


def field(number, value):
    if isinstance(value, int):
        return bytes([number << 3 & 127 | 128 * (number > 15)]) + bytes([number >> 4] if number > 15 else []) + bytes([value])
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    return bytes([number << 3 | 2, len(value)]) + value


def spiece(pieces, normaliser):
    out = b"".join(field(1, field(1, text.encode()) + field(2, score) + field(3, kind)) for text, score, kind in pieces)
    return out + field(2, field(3, 1) + field(35, 1)) + field(3, normaliser)


PIECES = [("<unk>", 0.0, 2), ("</s>", 0.0, 3), (BAR, -2.0, 1), ("a", -3.0, 1), ("ab", -4.0, 1), ("Ab", 0.0, 4), ("<0xC3>", 0.0, 6)]
save("spiece", "plain", spiece(PIECES, b""))
save("spiece", "map", spiece(PIECES, field(2, MAP) + field(4, 0)))


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def form(parts, boundary):
    """The parameter of the Content-Type, then the body. parts: (name and further parameters, value)."""
    lines = [b'--%s\r\nContent-Disposition: form-data; name=%s\r\n\r\n%s\r\n' % (boundary, name, value) for name, value in parts]
    return b"boundary=" + boundary + b"\n" + b"".join(lines) + b"--" + boundary + b"--\r\n"


PNG = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(b"\0\1\2\3")) + chunk(b"IEND", b"")
save("multipart", "fields", form([(b'"prompt"', b"a red cat"), (b'"seconds"', b"4"), (b'"seed"', b"1")], b"XX"))
save("multipart", "twice", form([(b'"prompt"', b"x"), (b'"prompt"', b"y")], b"XX"))
save("multipart", "files", form([(b'"prompt"', "é".encode()), (b'"input_reference"; filename="a.png"\r\nContent-Type: image/png', PNG),
                                 (b'"mask"; filename="../m.png"', PNG)], b"a-b"))
