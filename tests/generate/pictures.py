"""Pictures for the scripts of this folder: PNG files of a function, or of a frame of an array that weft wrote."""
import struct, zlib


def write(path, width, height, rgb):
    """rgb: bytes, three for each pixel, row by row"""
    rows = b"".join(b"\0" + rgb[y * width * 3:(y + 1) * width * 3] for y in range(height))
    part = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b""))


def draw(path, width, height, colour):
    """colour(x, y): three bytes"""
    write(path, width, height, b"".join(bytes(colour(x, y)) for y in range(height) for x in range(width)))


def draw_mask(path):
    """32 x 32: the first cell of 8 columns is white, and one column of the second"""
    draw(path, 32, 32, lambda x, y: (255,) * 3 if x < 9 else (0,) * 3)


def write_frame(path, width, height, frame):
    """frame: numbers in -1..1, as weft generate --frames-npy writes them"""
    write(path, width, height, bytes(max(0, min(255, int((v + 1) * 127.5 + 0.5))) for v in frame))
