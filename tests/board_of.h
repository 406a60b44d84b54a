/* The Grafana board (packaging/grafana/weft.json) compared with exported figures. */
#ifndef WEFT_TESTS_BOARD_OF_H
#define WEFT_TESTS_BOARD_OF_H

#include "base/fs.h"
#include "base/memory.h"

#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Checks that `text` has every metric of the board whose name begins with `prefix`. */
static inline void check_board(const char *prefix, const char *text)
{
    char *board = NULL, head[160];
    int64_t bytes = 0, found = 0;
    cr_assert_eq(weft_file_read("packaging/grafana/weft.json", 1 << 20, &board, &bytes), WEFT_OK,
                 "%s", weft_error_message());
    for (const char *at = board; (at = strstr(at, prefix)); found++) {
        const char *end = at;
        while (isalnum((unsigned char)*end) || *end == '_')
            end++;
        snprintf(head, sizeof head, "# TYPE %.*s ", (int)(end - at), at);
        cr_expect(strstr(text, head), "the board has %.*s, which is not exported", (int)(end - at),
                  at);
        at = end;
    }
    cr_expect_gt(found, 0, "the board has no metric %s", prefix);
    weft_free(board);
}

#endif
