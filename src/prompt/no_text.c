#include "prompt/no_text.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

weft_status weft_no_text_open(const weft_text_conditioning *c, int r, const char *folder,
                              weft_tensors **file, const weft_stored_tensor **table)
{
    const weft_text_encoder_row *row = c->encoder[r].row;
    const weft_conditioning_entry *entry = weft_text_conditioning_find(c, row->text);
    weft_tensors *opened = NULL;
    *file = NULL;
    if (!row->no_text || !entry)
        return WEFT_OK;
    WEFT_TRY(weft_tensors_open(folder, &opened));
    const weft_stored_tensor *t = weft_tensors_find(opened, row->no_text);
    weft_status_code status = WEFT_OK;
    if (!t)
        goto out;
    if (t->rank != 2 || t->dim[0] < entry->rows || t->dim[1] != entry->width)
        WEFT_GO(weft_error(WEFT_MSG_TENSOR_SHAPE,
                           WEFT_AT(.file = t->file, .key = row->no_text, WEFT_NUMBER(t->dim[0])),
                           "embeddings of %" PRId64 " tokens are needed, each of %" PRId64
                           " values",
                           entry->rows, entry->width));
    *table = t;
    *file = opened;
    opened = NULL;
out:
    weft_tensors_close(opened);
    return status;
}

void weft_no_text_read(const weft_text_conditioning *c, int r, const weft_stored_tensor *table,
                       float *to)
{
    const weft_conditioning_entry *entry = weft_text_conditioning_find(c, c->encoder[r].row->text);
    weft_stored_read(table, 0, entry->rows * entry->width, to);
}

void weft_no_text_set_dropped(const weft_text_conditioning *c, weft_input_lookup *find, void *user,
                              int64_t row, const float *empty, const float *caption)
{
    for (int i = 0; i < c->entries; i++) {
        const weft_conditioning_entry *entry = &c->entry[i];
        const weft_text_encoder *encoder = &c->encoder[entry->encoder];
        const bool stays = encoder->stores_no_text && entry->port == encoder->row->mask;
        weft_text_conditioning_set_entry(c, entry, find, user, row,
                                         stays && caption ? caption : empty);
    }
}

/* Finds inputs of the empty caption. */
typedef struct empty_lookup {
    weft_input_lookup *find;
    void *user;
} empty_lookup;

static weft_tensor *find_empty(void *user, const char *name)
{
    const empty_lookup *to = user;
    char own[64];
    snprintf(own, sizeof own, WEFT_EMPTY_CAPTION "%s", name + strlen("batch."));
    return to->find(to->user, own);
}

void weft_no_text_set_empty(const weft_text_conditioning *c, weft_input_lookup *find, void *user,
                            int64_t row, const float *empty, const float *caption)
{
    weft_no_text_set_dropped(c, find_empty, &(empty_lookup){find, user}, row, empty, caption);
}

void weft_no_text_set_negative(const weft_text_conditioning *c, int r, const float *table,
                               const float *prompt, float *negative)
{
    for (int i = 0; i < c->entries; i++) {
        const weft_conditioning_entry *entry = &c->entry[i];
        const weft_text_encoder_row *row = c->encoder[r].row;
        const float *from = entry->port == row->text ? table : prompt + entry->at;
        if (entry->encoder == r && (entry->port == row->text || entry->port == row->mask))
            memcpy(negative + entry->at, from, (size_t)(entry->rows * entry->width) * sizeof *from);
    }
}
