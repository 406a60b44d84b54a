#include "curate/embeddings/embeddings_config.h"

#include "base/fs.h"
#include "base/hex.h"
#include "base/memory.h"
#include "storage/http_api.h"
#include "storage/input_copy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define AT(member) offsetof(weft_embeddings_config, member)

static const char *const requests[] = {"input", "messages", NULL};

static const weft_key embeddings_keys[] = {
    {"model", WEFT_KEY_STRING, AT(model), "", "",
     "folder of an image encoder (CLIPModel, CLIPVisionModel, CLIPVisionModelWithProjection or "
     "ViTModel). \"\": none"},
    {"onnx", WEFT_KEY_STRING, AT(onnx), "", "",
     "ONNX file with an input [N, 3, H, W], whose first output is the embedding. \"\": none"},
    {"url", WEFT_KEY_STRING, AT(url), "", "",
     "OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1; requests go to URL/embeddings. "
     "\"\": none"},
    {"frames", WEFT_KEY_I64, AT(frames), "4", "",
     "frames of a shot, evenly spread; the embedding is the mean of their unit vectors", .min = 1,
     .max = 256},
    {"side", WEFT_KEY_I64, AT(side), "224", "pixels",
     "side of the images for a server and for an ONNX model of any size", .min = 8, .max = 8192},
    {"mean", WEFT_KEY_F64_LIST, AT(mean), "[0.48145466, 0.4578275, 0.40821073]", "",
     "mean of red, green and blue (0 to 1) that the model expects"},
    {"std", WEFT_KEY_F64_LIST, AT(std), "[0.26862954, 0.26130258, 0.27577711]", "",
     "standard deviation of red, green and blue that the model expects", .min = 1e-6, .max = 1e6},
    {"server_model", WEFT_KEY_STRING, AT(server_model), "", "", "name of the model at the server"},
    {"key_variable", WEFT_KEY_STRING, AT(key_variable), "", "",
     "environment variable that contains the key of the server; \"\": no key"},
    {"request", WEFT_KEY_ENUM, AT(request), "input", "",
     "form of a request. input: a list of data URLs, all frames at once; messages: one chat "
     "message "
     "with an image_url for each frame, as vLLM reads it",
     .choices = requests},
    {"attempts", WEFT_KEY_I64, AT(attempts), "5", "",
     "attempts of a request that fails transiently (429, 5xx, no reply)", .min = 1, .max = 100},
    {"timeout_seconds", WEFT_KEY_F64, AT(timeout_seconds), "60", "s", "longest time of an attempt",
     .min = 1, .max = 1e5},
    {"merge", WEFT_KEY_F64, AT(merge), "0", "cosine",
     "join neighbouring shots without a transition whose embeddings have at least this cosine, up "
     "to clips.max_seconds. 0: join none",
     .min = 0, .max = 1},
    {"duplicate", WEFT_KEY_F64, AT(duplicate), "0", "cosine",
     "reject shots whose embedding has at least this cosine with a better shot of their cluster. "
     "0: reject none",
     .min = 0, .max = 1},
    {"clusters", WEFT_KEY_I64, AT(clusters), "0", "",
     "clusters of the accepted shots by k-means; 0: one per 1,000 shots", .min = 0, .max = 1e6},
    {"max_per_cluster", WEFT_KEY_I64, AT(max_per_cluster), "0", "",
     "most shots of a cluster, best first; 0 (default): no limit", .min = 0, .max = 1e9},
};
const weft_section weft_embeddings_section = {
    "embeddings", "image embeddings of shots, for merging, near-duplicates by meaning and balance",
    sizeof(weft_embeddings_config), embeddings_keys, WEFT_COUNT(embeddings_keys)};

bool weft_embeddings_are_on(const weft_embeddings_config *c)
{
    return c->model[0] || c->onnx[0] || c->url[0];
}

bool weft_embeddings_choose(const weft_embeddings_config *c)
{
    return weft_embeddings_are_on(c) &&
           (c->clusters > 0 || c->max_per_cluster > 0 || c->duplicate > 0);
}

static weft_status check_url(const weft_embeddings_config *c)
{
    const char *key = c->key_variable[0] ? getenv(c->key_variable) : NULL;
    WEFT_TRY(weft_http_api_check_url(c->url, "embeddings.url", "embeddings.key_variable"));
    if (!c->server_model[0])
        return weft_error(
            WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = "embeddings.server_model"),
            "embeddings.url needs embeddings.server_model, the name of the model at the server");
    if (c->key_variable[0] && (!key || !*key || strpbrk(key, "\r\n")))
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = "embeddings.key_variable", .value = c->key_variable),
                          "the environment variable %s %s", c->key_variable,
                          key && *key ? "has a line break; a key has none"
                                      : "is not set; set it to the key of the server");
    return WEFT_OK;
}

weft_status weft_embeddings_check(const weft_embeddings_config *c)
{
    const int sources = (c->model[0] != 0) + (c->onnx[0] != 0) + (c->url[0] != 0);
    const bool used = c->merge > 0 || c->duplicate > 0 || c->clusters > 0 || c->max_per_cluster > 0;
    if (sources > 1 || (sources == 0 && used))
        return weft_error(WEFT_MSG_CONFIG_CONFLICT, WEFT_AT(.key = "embeddings"),
                          "the section has %d of the keys model, onnx and url; give one", sources);
    if (c->mean.count != 3 || c->std.count != 3)
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = c->mean.count != 3 ? "embeddings.mean" : "embeddings.std"),
                          "the list needs three numbers: red, green, blue");
    if (c->onnx[0] && access(c->onnx, R_OK) != 0)
        return weft_error_errno(WEFT_AT(.file = c->onnx, .key = "embeddings.onnx"),
                                "cannot read the model");
    if (c->model[0] && !weft_path_is_dir(c->model))
        return weft_error(WEFT_MSG_CONFIG_VALUE,
                          WEFT_AT(.key = "embeddings.model", .value = c->model),
                          "the folder of the image encoder does not exist");
    return c->url[0] ? check_url(c) : WEFT_OK;
}

/* A model's folder counts by the sizes of its files: new weights are other embeddings. */
static void add_folder(weft_buf *text, const char *folder)
{
    weft_names names = {0};
    if (weft_list_dir(folder, false, &names) == WEFT_OK)
        for (int64_t i = 0; i < names.count; i++) {
            struct stat st = {0};
            char *path = weft_path_join(folder, names.name[i]);
            if (path && stat(path, &st) == 0)
                weft_buf_printf(text, " %s %lld %lld", names.name[i], (long long)st.st_size,
                                (long long)st.st_mtime);
            weft_free(path);
        }
    weft_names_free(&names);
}

void weft_embeddings_define(const weft_embeddings_config *c, char definition[24])
{
    weft_buf text = {0};
    struct stat st = {0};
    const char *model = weft_input_copy_version(c->model), *onnx = weft_input_copy_version(c->onnx);
    weft_buf_printf(&text, "%s\n%s\n%s\n%s\n%" PRId64 " %" PRId64 " %d", model ? model : c->model,
                    onnx ? onnx : c->onnx, c->url[0] ? "server" : "", c->server_model, c->frames,
                    c->side, c->request);
    for (int k = 0; k < 3; k++)
        weft_buf_printf(&text, " %a %a", c->mean.item[k], c->std.item[k]);
    if (c->onnx[0] && !onnx && stat(c->onnx, &st) == 0)
        weft_buf_printf(&text, " %lld %lld", (long long)st.st_size, (long long)st.st_mtime);
    if (c->model[0] && !model)
        add_folder(&text, c->model);
    weft_hex_print(XXH3_64bits(text.data, (size_t)text.len), definition);
    weft_buf_free(&text);
}
