#!/usr/bin/env python3
"""Reduces `mysqlbinlog -v --base64-output=DECODE-ROWS` (or `mariadb-binlog`) output on
stdin to the facts that tests/golden.rs compares, one a line on stdout:
`E` event, `G` GTID of the next transaction, `Q` first line of a DDL statement, `R` row line.
Row lines of more than 200 bytes become `~length crc32`."""
import re, sys, zlib

HEADER = re.compile(rb"^#\d{6} +\d+:\d\d:\d\d server id (\d+)  end_log_pos \d+ (?:CRC32 0x[0-9a-f]+ )?\t(.*)$")


def event(text):
    text = text.replace(b"\t", b" ").strip()
    if m := re.match(rb"Start: binlog v 4, server v (.*?) created", text):
        return b"Start " + m[1].strip()
    if m := re.match(rb"GTID (\d+-\d+-\d+)(.*)", text):
        return b"GTID " + m[1] + b"".join(b" " + w for w in (b"ddl", b"trans") if b" " + w in m[2])
    if text.startswith(b"Query"):
        text = re.sub(rb" xid=(\d+)$", rb" Xid = \1", text)
        return re.sub(rb" (error_code=\d+).*?( Xid = [1-9]\d*)?$", rb" \1\2", text)
    if m := re.match(rb"(\w*_rows\w*): table id (\d+)(.*)", text):
        return m[1] + b" " + m[2] + (b" end" if b"STMT_END_F" in m[3] else b"")
    text = re.sub(rb"^XID = ", b"XA PREPARE ", text)
    return text


def row(line):
    line = line[4:].strip() if not line.rstrip().endswith(b"'") else line[4:].lstrip()
    line = re.sub(rb"^(@\d+)=!! Don't know.*", rb"\1=?", line)
    if len(line) > 200:
        name, value = line.split(b"=", 1)
        line = name + b"=~%d %08x" % (len(value), zlib.crc32(value))
    return line


out = sys.stdout.buffer
for line in sys.stdin.buffer.read().split(b"\n"):
    if m := HEADER.match(line):
        out.write(b"E " + event(m[2]) + b"\n")
    elif m := re.match(rb"SET @@SESSION.GTID_NEXT= '(.*?:\d+)'", line):
        out.write(b"G " + m[1] + b"\n")
    elif m := re.match(rb"(?:### )?((?:create|drop|alter) .*)", line, re.IGNORECASE):
        # The halves of a two-phase ALTER are shown as comments.
        out.write(b"Q " + m[1].rstrip() + b"\n")
    elif line.startswith(b"###"):
        out.write(b"R " + row(line) + b"\n")
