"""What several commands share.

`output` prints every result as text or JSON, and problems with hints. `options` and `credentials` parse option values.
The other modules show work in progress (`foreground`, `transfer_progress`, `index_progress`) or results
(`run_summary`, `report_summary`, `plan_table`, `contact_sheet`). Nothing here imports a command.
"""
