#include "comm/mail_inside.h"
uint8_t *tt_quorum_place(struct tt_mail *mail, const struct tt_letter_head *head) { (void)mail,(void)head; return NULL; }
void tt_quorum_arrived(struct tt_mail *mail, const struct tt_letter_head *head) { (void)mail,(void)head; }
void tt_quorum_lost(struct tt_mail *mail, int source) { (void)mail,(void)source; }
uint64_t tt_quorum_timers(struct tt_mail *mail, uint64_t now) { (void)mail,(void)now; return UINT64_MAX; }
void tt_quorum_free(struct tt_mail *mail) { (void)mail; }
size_t tt_quorum_memory(const struct tt_mail *mail) { (void)mail; return 0; }
