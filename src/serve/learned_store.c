#include "serve/learned_store.h"

#include <sqlite3.h>

static weft_status replace(weft_queue_store *s, uint64_t conditions, const char *text)
{
    sqlite3_stmt *row;
    WEFT_TRY(weft_queue_store_prepare(
        s, "INSERT OR REPLACE INTO learned(number, conditions, seconds) VALUES(1, ?1, ?2)", &row));
    sqlite3_bind_int64(row, 1, (int64_t)conditions);
    weft_queue_store_bind(row, 2, text);
    return weft_queue_store_finish(s, row);
}

weft_status weft_learned_store_write(weft_queue_store *s, uint64_t conditions,
                                     const weft_learned_seconds *learned)
{
    weft_buf text = {0};
    weft_status_code status = weft_learned_seconds_write(learned, &text);
    if (status == WEFT_OK)
        status = weft_queue_store_set_waits(s, false);
    if (status == WEFT_OK)
        status = weft_status_first(replace(s, conditions, text.data),
                                   weft_queue_store_set_waits(s, true));
    weft_buf_free(&text);
    return status;
}

weft_status weft_learned_store_read(weft_queue_store *s, uint64_t conditions,
                                    weft_learned_seconds *learned)
{
    sqlite3_stmt *row;
    weft_status_code status = WEFT_OK;
    *learned = (weft_learned_seconds){0};
    WEFT_TRY(weft_queue_store_prepare(s, "SELECT seconds FROM learned WHERE conditions=?1", &row));
    sqlite3_bind_int64(row, 1, (int64_t)conditions);
    const int code = sqlite3_step(row);
    if (code == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(row, 0);
        (void)weft_learned_seconds_read(text ? text : "", learned); /* else empty */
    } else if (code != SQLITE_DONE) {
        status = weft_queue_store_error(s);
    }
    sqlite3_finalize(row);
    return status;
}
