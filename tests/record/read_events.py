# SPDX-License-Identifier: MIT
#
# Reads TensorBoard's event files with nothing but Python: yields (wall time, step, tag, value) of every whole record.
# The value of what is no scalar is None. A record that is cut ends the file; a record with a wrong checksum is an error.
import struct

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)

def masked_crc(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

def records(path):
    data, at = open(path, "rb").read(), 0
    while at + 12 <= len(data):
        size, crc = struct.unpack_from("<QI", data, at)
        assert crc == masked_crc(data[at:at + 8]), f"{path}: byte {at}: wrong checksum of a length"
        if at + 16 + size > len(data):
            break
        body = data[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked_crc(body), f"{path}: byte {at}: wrong checksum"
        yield body
        at += 16 + size

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at

def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value

def events(path):
    for body in records(path):
        event = dict(fields(body))
        wall, step = struct.unpack("<d", event[1])[0], event.get(2, 0)
        for number, value in fields(event.get(5, b"")):
            v = dict(fields(value))
            yield wall, step, v[1].decode(), struct.unpack("<f", v[2])[0] if 2 in v else None
