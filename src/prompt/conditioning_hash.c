#include "prompt/conditioning_hash.h"

#include "base/fs.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static weft_status hash_files(const char *path, XXH3_state_t *state)
{
    weft_names names = {0};
    char folder[600], file[1300];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (!weft_path_is_dir(folder))
        snprintf(slash ? slash : folder, slash ? 1 : 2, "%s", slash ? "" : ".");
    WEFT_TRY(weft_list_dir(folder, false, &names));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < names.count; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, names.name[i]);
        if (weft_tokenizer_is_file(names.name[i]))
            WEFT_GO(weft_hash_file(state, file));
    }
out:
    weft_names_free(&names);
    return status;
}

weft_status weft_text_conditioning_hash(const weft_text_conditioning *c, int r, uint64_t *hash)
{
    const weft_text_encoder *encoder = &c->encoder[r];
    const weft_text_encoder_row *row = encoder->row;
    weft_buf what = {0};
    weft_buf_printf(&what, "%" PRId64 " %" PRId64 " %d %d %d %s|%s", encoder->length, row->crop,
                    row->clean, row->sees_padding, row->zeros, row->before ? row->before : "",
                    row->after ? row->after : "");
    if (row->seen_padding)
        weft_buf_printf(&what, "|%" PRId64, row->seen_padding);
    if (row->empty || row->quoted)
        weft_buf_printf(&what, "|%s|%d", row->empty ? row->empty : "", row->quoted);
    if (row->own_side)
        weft_buf_printf(&what, "|side");
    if (row->instruction)
        weft_buf_printf(&what, "|instruction");
    if (row->prompt_before || row->negative_before)
        weft_buf_printf(&what, "|%s|%s", row->prompt_before ? row->prompt_before : "",
                        row->negative_before ? row->negative_before : "");
    for (int i = 0; row->hidden[i]; i++)
        weft_buf_printf(&what, "|%" PRId64, row->hidden[i]);
    if (row->all_hidden)
        weft_buf_printf(&what, "|all");
    if (row->connectors)
        weft_buf_printf(&what, "|%s", row->connectors);
    for (int i = 0; i < c->entries; i++)
        if (c->entry[i].encoder == r)
            weft_buf_printf(&what, "|%s", weft_port_name(c->entry[i].port));
    XXH3_state_t *state = XXH3_createState();
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&what));
    WEFT_GO(WEFT_ALLOCATED(state, "the text encoders"));
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, what.data, (size_t)what.len);
    if (encoder->tokenizer[0])
        WEFT_GO(hash_files(encoder->tokenizer, state));
    *hash = XXH3_64bits_digest(state);
out:
    XXH3_freeState(state);
    weft_buf_free(&what);
    return status;
}
