#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

weft_status weft_hash_file(XXH3_state_t *state, const char *path)
{
    enum { PIECE = 256 << 10 }; /* is still in the cache when it is hashed */
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return weft_error_errno(WEFT_AT(.file = path), "cannot open the file");
    char *piece = weft_alloc_aligned(PIECE);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(piece, "%s", path));
    for (ssize_t n = 1; n != 0;) {
        n = read(fd, piece, PIECE);
        if (n > 0)
            XXH3_64bits_update(state, piece, (size_t)n);
        else if (n < 0 && errno != EINTR)
            WEFT_GO(weft_error_errno(WEFT_AT(.file = path), "cannot read the file"));
    }
out:
    weft_free(piece);
    close(fd);
    return status;
}
