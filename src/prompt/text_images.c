#include "prompt/text_images.h"

#include "base/memory.h"

#include <string.h>

/* Appends the template of image n, whose number is n + 1. */
static void append_image(const char *each, int n, weft_buf *to)
{
    for (; *each; each++)
        if (*each == '#')
            weft_buf_printf(to, "%d", n + 1);
        else
            weft_buf_append(to, each, 1);
}

static weft_status write_before(const weft_edit_pipeline *edit, int images, weft_text_encoder *e)
{
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    weft_buf_printf(&text, "%s", edit->before);
    for (int i = 0; i < images; i++)
        append_image(edit->each, i, &text);
    WEFT_GO(weft_buf_check(&text));
    if (text.len >= (int64_t)sizeof e->before)
        WEFT_GO(weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_AT(WEFT_NUMBER(text.len)),
                           "the template of the images is too long"));
    memcpy(e->before, text.data, (size_t)text.len + 1);
out:
    weft_buf_free(&text);
    return status;
}

/* Finds the first token of each image in the template, and counts the template's tokens. */
static weft_status find_images(weft_text_encoder *e, const weft_tokenizer *t, int32_t image,
                               int64_t *tokens)
{
    int32_t *id = NULL;
    int64_t count, more = 0;
    int found = 0;
    WEFT_TRY(weft_tokenizer_encode(t, e->before, (int64_t)strlen(e->before), 0, &id, &count, NULL));
    for (int64_t i = 0; i < count; i++)
        if (id[i] == image && found < e->images.count) {
            e->images.of[found].at = i + more;
            more += e->images.of[found].rows * e->images.of[found].columns - 1;
            found++;
        }
    weft_free(id);
    *tokens = count;
    return found == e->images.count
               ? WEFT_OK
               : weft_error(WEFT_MSG_TOKENIZER_INVALID,
                            WEFT_AT(.file = e->tokenizer, .value = e->edit->image),
                            "the tokenizer has no such token for images. It belongs to another "
                            "model.");
}

static weft_status find_sign(const weft_text_encoder *e, const weft_tokenizer *t, int32_t *image)
{
    int32_t *id = NULL;
    int64_t count;
    const char *sign = e->edit->image;
    WEFT_TRY(weft_tokenizer_encode(t, sign, (int64_t)strlen(sign), 0, &id, &count, NULL));
    *image = count && !strcmp(weft_tokenizer_piece(t, id[count - 1]), sign) ? id[count - 1] : -1;
    weft_free(id);
    return WEFT_OK;
}

weft_status weft_text_images_set(weft_text_conditioning *c, weft_tokenizer_set *tokenizers,
                                 const weft_model *denoiser, const weft_edit_pipeline *edit,
                                 const weft_image_tokens *images, const char *where)
{
    weft_text_encoder *e = &c->encoder[0];
    const weft_tokenizer *t = tokenizers->of[0];
    int64_t tokens;
    if (!t)
        return weft_error(
            WEFT_MSG_TEXT_ENCODER_UNSUPPORTED,
            WEFT_AT(.file = where, .value = weft_model_class(&e->model)),
            "%s has no place for images. Use the text encoder of the published model.",
            weft_model_class(&e->model));
    const int64_t words = e->length - e->row->crop; /* of the text and the template after it */
    e->edit = edit;
    e->images = *images;
    WEFT_TRY(write_before(edit, images->count, e));
    WEFT_TRY(find_sign(e, t, &tokenizers->sign[0].image));
    WEFT_TRY(find_images(e, t, tokenizers->sign[0].image, &tokens));
    e->length = tokens + words;
    e->text_tokens = e->length + weft_image_tokens_count(images) - images->count - edit->crop;
    return weft_text_conditioning_connect(denoiser, where, c);
}

weft_status weft_text_images_expand(const weft_text_encoder *e, int32_t image, int32_t **id,
                                    int64_t *count)
{
    const weft_image_tokens *images = &e->images;
    const int64_t more = weft_image_tokens_count(images) - images->count;
    int32_t *all = weft_alloc((*count + more + 1) * (int64_t)sizeof *all);
    int64_t to = 0;
    int found = 0;
    for (int64_t i = 0; i < *count && all; i++) {
        int64_t times = 1;
        if ((*id)[i] == image) {
            times = found < images->count ? images->of[found].rows * images->of[found].columns : 0;
            found++;
        }
        for (int64_t k = 0; k < times; k++)
            all[to++] = (*id)[i];
    }
    weft_free(*id);
    *id = all;
    *count = to;
    if (!all)
        return weft_no_memory("the tokens of a prompt");
    if (found == images->count)
        return WEFT_OK;
    weft_free(all);
    *id = NULL;
    return weft_error(WEFT_MSG_PROMPT_INVALID, WEFT_AT(.value = e->edit->image),
                      "a prompt contains the sign of an image for %s; remove it",
                      weft_model_class(&e->model));
}
