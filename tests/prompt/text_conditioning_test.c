/* Several text encoders of a denoiser in one graph. */
#include "model/model.h"
#include "prompt/text_conditioning.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define HIDREAM "tests/golden/pipelines/hidream/"

/* Each reads tokens of its own, from an input of its own: two CLIPs, a T5 and a Llama, each with
 * another vocabulary. With an input in common one would read the ids of another one's tokenizer. */
Test(captions, every_encoder_has_its_own_tokens)
{
    static const char *const inputs[] = {"batch.tokens", "batch.tokens_2", "batch.tokens_3",
                                         "batch.tokens_4"};
    enum { BATCH = 2, READERS = 4 };
    weft_model denoiser;
    weft_text_encoder_spec spec[READERS] = {0};
    weft_text_conditioning captions;
    cr_assert_eq(weft_model_open_as(HIDREAM "transformer", WEFT_ROLE_DENOISER, &denoiser), WEFT_OK,
                 "%s", weft_error_message());
    for (int r = 0; r < READERS; r++) {
        char folder[100] = HIDREAM "text_encoder";
        if (r > 0)
            snprintf(folder, sizeof folder, HIDREAM "text_encoder_%d", r + 1);
        spec[r].tokenizer = "tokenizer.json"; /* it is not opened */
        spec[r].length = 11 + r;
        cr_assert_eq(weft_model_open_as(folder, WEFT_ROLE_TEXT_ENCODER, &spec[r].model), WEFT_OK,
                     "%s", weft_error_message());
    }
    cr_assert_eq(weft_text_conditioning_open(&denoiser, spec, READERS, "test", &captions), WEFT_OK,
                 "%s", weft_error_message());
    weft_graph *g = weft_graph_create();
    weft_ports ports = weft_ports_none();
    weft_text_conditioning_encode(g, &captions, BATCH, 0, &ports);
    cr_assert_eq(weft_graph_check(g), WEFT_OK, "%s", weft_error_message());
    for (int r = 0; r < READERS; r++) {
        const weft_value tokens = weft_graph_find(g, inputs[r]);
        cr_assert(weft_value_ok(tokens), "no %s", inputs[r]);
        const weft_shape *shape = &weft_value_get(g, tokens)->shape;
        cr_expect(shape->rank == 2 && shape->dim[0] == BATCH && shape->dim[1] == 11 + r,
                  "%s is for %" PRId64 " tokens", inputs[r], shape->dim[1]);
    }
    weft_graph_free(g);
}
