"""`python without_landlock.py COMMAND...`: runs it as on a kernel without Landlock, whose calls do not exist."""

import ctypes
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD, JUMP_GE, JUMP_GT, RETURN = 0x20, 0x35, 0x25, 0x06
ALLOW, NO_SUCH_CALL = 0x7FFF0000, 0x00050000 | 38
PROGRAM = (
    (LOAD, 0, 0, 0),  # the number of the call
    (JUMP_GE, 0, 2, 444),
    (JUMP_GT, 1, 0, 446),
    (RETURN, 0, 0, NO_SUCH_CALL),
    (RETURN, 0, 0, ALLOW),
)

code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in PROGRAM))
described = ctypes.create_string_buffer(struct.pack("@HP", len(PROGRAM), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, FILTER, described, 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[1], sys.argv[1:])
