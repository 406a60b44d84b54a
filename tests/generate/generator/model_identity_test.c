/* The identity of a model, by which saved latents and resumed videos know it. */
#include "base/config.h"
#include "base/fs.h"
#include "generate/generator/saved_latents.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void write_file(const char *root, const char *name, const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0, "%s", path);
}

static void identity(const char *root, char model[WEFT_HEX_BYTES], char vae[WEFT_HEX_BYTES])
{
    cr_assert_eq(weft_model_identity(root, model, vae), WEFT_OK, "%s", weft_error_message());
}

/* Weights of a companion count next to the transformer's folder and inside it. */
Test(model_identity, has_all_weights)
{
    static const char *const folders[] = {"transformer", "transformer/controlnet", "controlnet",
                                          "vae"};
    char root[] = "/tmp/weft-identity-XXXXXX", path[300];
    char first[WEFT_HEX_BYTES], first_vae[WEFT_HEX_BYTES], model[WEFT_HEX_BYTES],
        vae[WEFT_HEX_BYTES];
    cr_assert(mkdtemp(root));
    for (int i = 0; i < WEFT_COUNT(folders); i++) {
        snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        cr_assert_eq(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/weights.safetensors", folders[i]);
        write_file(root, path, "begin");
    }
    write_file(root, "transformer/notes.txt", "begin");
    identity(root, first, first_vae);
    write_file(root, "transformer/notes.txt", "other");
    identity(root, model, vae);
    cr_expect_str_eq(model, first, "a file that is not read counts");
    for (int i = 0; i < WEFT_COUNT(folders); i++) {
        const bool is_vae = !strcmp(folders[i], "vae");
        snprintf(path, sizeof path, "%s/weights.safetensors", folders[i]);
        write_file(root, path, "other");
        identity(root, model, vae);
        cr_expect_eq(strcmp(model, first) == 0, is_vae, "%s", folders[i]);
        cr_expect_eq(strcmp(vae, first_vae) == 0, !is_vae, "%s", folders[i]);
        write_file(root, path, "begin");
    }
    identity(root, model, vae);
    cr_expect_str_eq(model, first);
    cr_expect_eq(weft_remove_tree(root), WEFT_OK);
}
