/* Webhooks: signatures by the example of Standard Webhooks, delays, legal URLs, the stored secret. */
#include "serve/webhook.h"

#include <criterion/criterion.h>

#include "base/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The expected value is of Python: hmac.new(bytes(range(32)), b"msg_1.1700000000.{}", sha256). */
Test(webhook, a_signature_has_id_time_and_body)
{
    const char *secret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    char a[WEFT_WEBHOOK_SIGNATURE], b[WEFT_WEBHOOK_SIGNATURE];
    const weft_webhook_message m = {"msg_1", 1700000000, "{}"};
    cr_assert_eq(weft_webhook_sign(secret, &m, a), WEFT_OK);
    cr_assert_str_eq(a, "v1,fhksJF5ElKjlPoT/jtefCO5XjQPvhf7Dhf/8R1ad9yU=");
    const weft_webhook_message others[] = {
        {"msg_2", 1700000000, "{}"}, {"msg_1", 1700000001, "{}"}, {"msg_1", 1700000000, "[]"}};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(weft_webhook_sign(secret, &others[i], b), WEFT_OK);
        cr_assert_str_neq(a, b);
    }
    static const char *const damaged[] = {"", "whsec_", "whsec_AAEC", "AAECAwQFBgc", "whsec_!!!!"};
    for (int i = 0; i < 5; i++)
        cr_assert_eq(weft_webhook_sign(damaged[i], &m, b), WEFT_E_FORMAT);
}

Test(webhook, delays_grow)
{
    double all = 0;
    for (int i = 1; i < WEFT_WEBHOOK_ATTEMPTS; i++) {
        cr_assert(i == 1 || weft_webhook_delay(i) > weft_webhook_delay(i - 1));
        all += weft_webhook_delay(i);
    }
    cr_assert_eq(weft_webhook_delay(1), 1);
    cr_assert_eq(weft_webhook_delay(3), 25);
    cr_assert_eq(weft_webhook_delay(100), 21600);
    cr_assert(all > 3600 && all < 86400);
}

Test(webhook, only_urls_of_the_operator)
{
    static const char *const allowed[] = {"https://a.org", "http://127.0.0.1:80/hooks/",
                                          "https://b.org/x"};
    static const char *const legal[] = {"https://a.org",       "https://a.org/",
                                        "https://a.org/h?a=1", "http://127.0.0.1:80/hooks/1",
                                        "https://b.org/x",     "https://b.org/x/y",
                                        "https://b.org/x?y"};
    static const char *const illegal[] = {"",
                                          "https://a.org.example/",
                                          "https://a.org@example/",
                                          "https://u@a.org/",
                                          "http://a.org/",
                                          "https://a.org:444/",
                                          "http://127.0.0.1:80/",
                                          "https://a.org/ x",
                                          "https://b.org/xy",
                                          "file:///etc/passwd",
                                          "ftp://a.org/",
                                          "https://a.org/\n",
                                          "http://127.0.0.1:80/hooks/../admin",
                                          "https://a.org\\@b.org/",
                                          "https://a.org/#x"};
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        cr_assert(weft_webhook_is_allowed(legal[i], allowed, 3), "%s", legal[i]);
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++)
        cr_assert(!weft_webhook_is_allowed(illegal[i], allowed, 3), "%s", illegal[i]);
    cr_assert(!weft_webhook_is_allowed("https://a.org/", allowed, 0));
}

Test(webhook, the_secret_is_kept_and_private)
{
    char folder[] = "/tmp/weft-webhook-XXXXXX", first[WEFT_WEBHOOK_SECRET],
         second[WEFT_WEBHOOK_SECRET], path[64];
    struct stat facts;
    cr_assert(mkdtemp(folder));
    cr_assert_eq(weft_webhook_secret(folder, first), WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_webhook_secret(folder, second), WEFT_OK);
    cr_assert_str_eq(first, second);
    snprintf(path, sizeof path, "%s/webhook-secret", folder);
    cr_assert(stat(path, &facts) == 0 && (facts.st_mode & 0777) == 0600);
    cr_assert_eq(weft_file_write_atomic(path, "x", 1), WEFT_OK);
    cr_assert_eq(weft_webhook_secret(folder, second), WEFT_E_FORMAT);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}
