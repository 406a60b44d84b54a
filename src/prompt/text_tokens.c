#include "prompt/text_tokens.h"

#include "base/log.h"
#include "prompt/text_images.h"
#include "prompt/text_rows.h"
#include "text/clean.h"
#include "text/quoted_text.h"

#include <string.h>

/* Finds the token id of a special string of the template. */
static weft_status find_sign(const weft_text_encoder *encoder, const weft_tokenizer *t,
                             const char *sign, int32_t *token)
{
    int32_t *id = NULL;
    int64_t count;
    WEFT_TRY(weft_tokenizer_encode(t, sign, (int64_t)strlen(sign), 0, &id, &count, NULL));
    const bool known = count && !strcmp(weft_tokenizer_piece(t, id[count - 1]), sign);
    *token = known ? id[count - 1] : -1;
    weft_free(id);
    return known ? WEFT_OK
                 : weft_error(WEFT_MSG_TOKENIZER_INVALID,
                              WEFT_AT(.file = encoder->tokenizer, .value = sign),
                              "the tokenizer has no token \"%s\", which the template of %s needs. "
                              "It belongs to another model.",
                              sign, weft_model_class(&encoder->model));
}

static weft_status find_special(const weft_text_encoder *encoder, const weft_tokenizer *t,
                                weft_special_tokens *special)
{
    const int64_t token = weft_model_text(&encoder->model).image_token;
    WEFT_TRY(find_sign(encoder, t, encoder->vision->image, &special->image));
    WEFT_TRY(find_sign(encoder, t, encoder->vision->closes, &special->closes));
    return special->image == token
               ? WEFT_OK
               : weft_error(WEFT_MSG_TOKENIZER_INVALID,
                            WEFT_AT(.file = encoder->tokenizer, .value = encoder->vision->image),
                            "\"%s\" is token %d, but the config of %s has token %" PRId64
                            " for images. "
                            "The tokenizer belongs to another model.",
                            encoder->vision->image, special->image,
                            weft_model_class(&encoder->model), token);
}

/* Opens the tokenizer of one encoder, and finds its special tokens. */
static weft_status open_tokenizer(const weft_text_encoder *encoder, weft_tokenizer **tokenizer,
                                  weft_special_tokens *sign)
{
    WEFT_TRY(weft_tokenizer_open(encoder->tokenizer, tokenizer));
    const int64_t tokens = weft_tokenizer_size(*tokenizer);
    json_t *config = weft_model_write(&encoder->model);
    const json_t *inside = json_object_get(config, "text_config");
    const int64_t rows =
        json_integer_value(json_object_get(inside ? inside : config, "vocab_size"));
    json_decref(config);
    if (rows < tokens)
        return weft_error(WEFT_MSG_TEXT_ENCODER_MISMATCH,
                          WEFT_AT(.file = encoder->tokenizer, WEFT_NUMBER(tokens)),
                          "the tokenizer has %" PRId64 " tokens, %s (%s) only %" PRId64
                          ". It belongs to another model.",
                          tokens, encoder->row->encoder, weft_model_class(&encoder->model), rows);
    return encoder->vision ? find_special(encoder, *tokenizer, sign) : WEFT_OK;
}

weft_status weft_tokenizer_set_open(const weft_text_conditioning *c, weft_tokenizer_set *s)
{
    weft_status_code status = WEFT_OK;
    *s = (weft_tokenizer_set){0};
    for (int r = 0; r < c->encoders; r++)
        if (c->encoder[r].tokenizer[0])
            WEFT_GO(open_tokenizer(&c->encoder[r], &s->of[r], &s->sign[r]));
out:
    if (status != WEFT_OK)
        weft_tokenizer_set_close(s);
    return status;
}

void weft_tokenizer_set_close(weft_tokenizer_set *s)
{
    for (int r = 0; r < WEFT_MAX_TEXT_ENCODERS; r++)
        weft_tokenizer_close(s->of[r]);
    *s = (weft_tokenizer_set){0};
}

/* Appends what the encoder reads of a text. *none: nothing, not even the template. */
static weft_status append_text(const weft_text_encoder_row *row, const char *text, weft_buf *whole,
                               bool *none)
{
    if (!*text && row->empty)
        text = row->empty;
    const int64_t length = (int64_t)strlen(text);
    *none = row->quoted && !weft_text_quoted(text, whole);
    if (row->quoted)
        return WEFT_OK;
    if (row->clean == WEFT_CLEAN_PROMPT)
        return weft_text_clean_prompt(text, length, true, whole);
    if (row->clean == WEFT_CLEAN_LOWER)
        weft_text_clean_lower(text, length, whole);
    else if (row->clean == WEFT_CLEAN_TRIM)
        weft_text_clean_ends(text, length, whole);
    else
        weft_buf_append(whole, text, length);
    return WEFT_OK;
}

/* What surrounds a text, NULL: nothing, and the number of all tokens, 0: no limit. */
typedef struct text_frame {
    const char *before, *after;
    int64_t most;
} text_frame;

static text_frame frame_of(const weft_text_encoder *encoder, weft_text_kind kind, const char *text,
                           int64_t most)
{
    const weft_text_encoder_row *row = encoder->row;
    const char *own = kind == WEFT_TEXT_PROMPT     ? row->prompt_before
                      : kind == WEFT_TEXT_NEGATIVE ? row->negative_before
                                                   : NULL;
    if (encoder->edit)
        return (text_frame){encoder->before, encoder->edit->after, most};
    if (encoder->vision)
        return (text_frame){encoder->vision->before, encoder->vision->after, most};
    if (kind == WEFT_TEXT_PROMPT && encoder->published && row->prompt_after &&
        !strstr(text, row->prompt_mark))
        return (text_frame){own ? own : row->before, row->prompt_after, most};
    return (text_frame){own ? own : row->before, row->after, most};
}

/* Ids of a text for the encoder's tokenizer. */
static weft_status ids_of(const weft_text_encoder_row *row, const weft_tokenizer *t,
                          const text_frame *frame, const char *text, int32_t **id, int64_t *count,
                          int64_t *cut)
{
    weft_buf whole = {0};
    bool none;
    const char *before = frame->before, *first = weft_tokenizer_first(t);
    /* a template that has the tokenizer's first token does not get it twice */
    if (before && !strncmp(before, first, strlen(first)))
        before += strlen(first);
    weft_buf_printf(&whole, "%s", before ? before : "");
    weft_status_code status = WEFT_OK;
    WEFT_GO(append_text(row, text, &whole, &none));
    const bool own =
        before && (frame->before == row->prompt_before || frame->before == row->negative_before);
    if (own && whole.len == (int64_t)strlen(before) && before[whole.len - 1] == ' ')
        whole.len--; /* no text: no blank after the template */
    weft_buf_printf(&whole, "%s", frame->after ? frame->after : "");
    WEFT_GO(weft_buf_check(&whole));
    WEFT_GO(weft_tokenizer_encode(t, whole.data, whole.len, frame->most, id, count, cut));
    *count = none ? 0 : *count;
out:
    weft_buf_free(&whole);
    return status;
}

/* A row of an encoder's inputs; NULL: not on this rank. */
typedef struct spelled {
    int32_t *tokens, *seen, *real, *uncut;
} spelled;

static int32_t *row_of(weft_input_lookup *find, void *user, const char *what, int r, int64_t row,
                       int64_t length)
{
    char name[32];
    const weft_tensor *to = find(user, weft_text_conditioning_input(what, r, name));
    return to ? (int32_t *)to->data + row * length : NULL;
}

/* Position after the last `closes` token, where the cut ends (weft_vision_input). */
static int64_t cut_end(const weft_text_encoder *encoder, const weft_special_tokens *special,
                       const int32_t *id, int64_t count)
{
    int64_t last = 0, closings = 0;
    for (int64_t i = 0; i < count; i++)
        if (id[i] == special->closes) {
            last = i + 1;
            closings++;
        }
    return closings < encoder->vision->closings ? encoder->length : last;
}

/* The image token must be at the template's position and nowhere else. */
static weft_status check_vision(const weft_text_encoder *encoder,
                                const weft_special_tokens *special, const int32_t *id,
                                int64_t count)
{
    const weft_vision_input *s = encoder->vision;
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found += id[i] == special->image;
    if (count <= s->at || id[s->at] != special->image)
        return weft_error(
            WEFT_MSG_TOKENIZER_INVALID, WEFT_AT(.file = encoder->tokenizer, .value = s->image),
            "\"%s\" is not token %" PRId64 " of the encoded template. The tokenizer belongs "
            "to another model.",
            s->image, s->at);
    return found == 1
               ? WEFT_OK
               : weft_error(
                     WEFT_MSG_PROMPT_INVALID, WEFT_AT(.value = s->image),
                     "a prompt contains \"%s\", which is the sign of an image for %s; remove it",
                     s->image, weft_model_class(&encoder->model));
}

/* Like weft_text_conditioning_tokenize, with the image token expanded to `patches` tokens. */
static weft_status tokenize_vision(const weft_text_encoder *encoder,
                                   const weft_special_tokens *special, int32_t padding,
                                   const int32_t *id, int64_t count, const spelled *to)
{
    const weft_vision_input *s = encoder->vision;
    const int64_t more = s->patches - 1, end = cut_end(encoder, special, id, count) - s->cut;
    WEFT_TRY(check_vision(encoder, special, id, count));
    for (int64_t i = 0; i < weft_text_encoder_positions(encoder); i++) {
        const int64_t from = i < s->at ? i : i > s->at + more ? i - more : s->at;
        if (to->tokens)
            to->tokens[i] = from < count ? id[from] : padding;
        if (to->seen)
            to->seen[i] = from < count;
    }
    for (int64_t i = 0; i < encoder->image_tokens && to->real; i++)
        to->real[i] = 1;
    for (int64_t i = 0; i < encoder->text_tokens; i++) {
        const bool uncut = s->crop + i < end;
        if (to->uncut)
            to->uncut[i] = uncut;
        if (to->real)
            to->real[encoder->image_tokens + i] = s->crop + i + (uncut ? 0 : s->cut) < count;
    }
    return WEFT_OK;
}

weft_status weft_text_conditioning_tokenize(const weft_text_conditioning *c, weft_tokenizer_set *s,
                                            int r, weft_input_lookup *find, void *user, int64_t row,
                                            const char *text)
{
    const weft_text_encoder *encoder = &c->encoder[r];
    const bool plain = encoder->instruction &&
                       (s->kind == WEFT_TEXT_NEGATIVE || (s->kind == WEFT_TEXT_CAPTION && !*text));
    const int64_t length = encoder->vision ? encoder->length : weft_text_encoder_positions(encoder),
                  crop = weft_text_encoder_crop(encoder);
    text_frame frame = frame_of(encoder, s->kind, text, encoder->length);
    const spelled to = {
        .tokens = row_of(find, user, "tokens", r, row, weft_text_encoder_positions(encoder)),
        .seen = row_of(find, user, "seen", r, row, weft_text_encoder_positions(encoder)),
        .real = row_of(find, user, "real", r, row, weft_text_encoder_rows(encoder)),
        .uncut = encoder->vision || encoder->instruction
                     ? row_of(find, user, "uncut", r, row, encoder->text_tokens)
                     : NULL};
    int32_t *id = NULL;
    int64_t count, cut;
    s->texts += r == 0;
    if (!s->of[r]) {
        if (to.tokens)
            encoder->model.family->tokens(encoder->model.config, text, to.tokens);
        return WEFT_OK;
    }
    if (plain)
        frame = (text_frame){NULL, encoder->row->after, encoder->text_tokens};
    WEFT_TRY(ids_of(encoder->row, s->of[r], &frame, text, &id, &count, &cut));
    if (encoder->edit)
        WEFT_TRY(weft_text_images_expand(encoder, s->sign[r].image, &id, &count));
    if (encoder->instruction)
        weft_text_rows_mark(encoder, plain, count, to.real, to.uncut);
    const int32_t padding = weft_tokenizer_padding(s->of[r]);
    s->cut[r] += cut > 0;
    const weft_status_code status =
        encoder->vision ? tokenize_vision(encoder, &s->sign[r], padding, id, count, &to) : WEFT_OK;
    const int64_t first =
        encoder->row->own_side && weft_tokenizer_pads_left(s->of[r]) ? length - count : 0;
    for (int64_t i = 0; i < length && !encoder->vision; i++) {
        const bool is_text = i >= first && i < first + count;
        if (to.tokens)
            to.tokens[i] = is_text ? id[i - first] : padding;
        if (to.seen)
            to.seen[i] = is_text || encoder->row->sees_padding;
        if (to.real && i >= crop && !encoder->instruction)
            to.real[i - crop] = i >= first && i < first + count + encoder->row->seen_padding;
    }
    weft_free(id);
    return status;
}

/* ---- truncation ----------------------------------------------------------------------------- */

static weft_status format_truncation(const weft_text_encoder *encoder, const weft_tokenizer *t,
                                     const char *text, weft_buf *out)
{
    int32_t *all = NULL, *kept = NULL;
    const text_frame whole = frame_of(encoder, WEFT_TEXT_PROMPT, text, 0),
                     limited = frame_of(encoder, WEFT_TEXT_PROMPT, text, encoder->length);
    int64_t count, left, cut, from = 0;
    WEFT_TRY(ids_of(encoder->row, t, &whole, text, &all, &count, NULL));
    weft_status_code status = WEFT_OK;
    WEFT_GO(ids_of(encoder->row, t, &limited, text, &kept, &left, &cut));
    if (cut) {
        while (from < left && all[from] == kept[from])
            from++;
        weft_buf_printf(
            out, "has %" PRId64 " tokens more than the %" PRId64 " that %s (%s) takes; cut was \"",
            cut, encoder->length, encoder->row->encoder, weft_model_class(&encoder->model));
        weft_tokenizer_text(t, all + from, cut < count - from ? cut : count - from, out);
        weft_buf_printf(out, "\"\n");
    }
out:
    weft_free(all);
    weft_free(kept);
    return status;
}

weft_status weft_text_conditioning_format_truncation(const weft_text_conditioning *c,
                                                     const weft_tokenizer_set *s, const char *text,
                                                     weft_buf *out)
{
    for (int r = 0; r < c->encoders; r++) {
        const weft_text_encoder *encoder = &c->encoder[r];
        const int64_t most = s->of[r] ? 0 : weft_model_text(&encoder->model).bytes;
        const int64_t length = (int64_t)strlen(text);
        if (most && length > most)
            weft_buf_printf(out, "has %" PRId64 " bytes; this model reads the first %" PRId64 "\n",
                            length, most);
        if (s->of[r])
            WEFT_TRY(format_truncation(encoder, s->of[r], text, out));
    }
    return weft_buf_check(out);
}

void weft_text_conditioning_warn_truncation(const weft_text_conditioning *c,
                                            const weft_tokenizer_set *s)
{
    for (int r = 0; r < c->encoders; r++)
        if (s->cut[r])
            weft_warning(WEFT_MSG_PROMPT_TRUNCATED, WEFT_AT(WEFT_NUMBER(s->cut[r])),
                         "%" PRId64 " of %" PRId64 " captions have more than the %" PRId64
                         " tokens that %s takes; the "
                         "rest of each was dropped",
                         s->cut[r], s->texts, c->encoder[r].length, c->encoder[r].row->encoder);
}
